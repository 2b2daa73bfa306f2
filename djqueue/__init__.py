"""Background jobs for Django that live in PostgreSQL."""

__version__ = "0.1.0"
