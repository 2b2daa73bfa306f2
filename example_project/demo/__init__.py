"""The show: ``manage.py demo`` and ``manage.py serve``. What is worth copying is in airports and bookings."""
