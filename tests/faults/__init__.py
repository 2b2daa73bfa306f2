"""A Django app that does what apps should not do, for tests of workers."""
