"""A Django app whose tasks write down that they ran."""
