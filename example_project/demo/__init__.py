"""The show: ``manage.py demo`` and ``manage.py serve``. What is worth copying into a project is in airports and bookings."""
