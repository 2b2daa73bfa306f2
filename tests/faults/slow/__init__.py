"""An app whose tasks take long to import."""
