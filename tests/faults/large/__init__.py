"""An app whose models take long to load."""
