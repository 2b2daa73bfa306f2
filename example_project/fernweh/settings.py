"""The settings of Fernweh, a small airport guide and travel shop.

What djqueue needs is marked with "djqueue:"; the rest is what every Django project has.
"""

import os
from pathlib import Path

import django

from fernweh.database import parse_url

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(os.environ.get("FERNWEH_VAR", BASE_DIR / "var"))

DEBUG = os.environ.get("DEBUG", "1") == "1"
SECRET_KEY = "this is a demonstration and keeps no secrets"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "airports",
    "bookings",
    "demo",
    "djqueue",  # djqueue: the tables, the admin and manage.py runworker
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]

# djqueue: jobs live in the database that the site uses anyway, so that enqueue() joins its transactions.
DATABASES = {"default": parse_url(os.environ.get("DATABASE_URL", "postgresql://127.0.0.1/fernweh"))}

# djqueue: the queues that exist. Without --queues, manage.py runworker serves them all.
TASKS = {
    "default": {
        "BACKEND": "djqueue.backends.PostgresBackend",
        "QUEUES": ["default", "mail", "reports", "images", "weather"],
        "OPTIONS": {
            # How many jobs of a queue one worker process runs at once. Without an entry: the worker's --concurrency,
            # shared by all such queues.
            "queues": {
                # These only wait for a remote server, so many at once cost little.
                "weather": {"concurrency": 40},
                # These compute. More threads than processors make none of them faster and all others slower.
                "images": {"concurrency": 2},
                "reports": {"concurrency": 2},
            },
        },
    },
}
# djqueue: the same jobs in Redis or Valkey. The tasks know nothing of it.
if os.environ.get("DJQUEUE_BACKEND") == "redis":
    TASKS["default"]["BACKEND"] = "djqueue.backends.RedisBackend"
    TASKS["default"]["OPTIONS"] |= {
        "url": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
        # A paid booking must get its ticket, also when the process dies between the commit and the enqueue.
        "outbox": True,
    }

# Where the tasks find the weather service. `manage.py demo` and `manage.py serve` start one and tell its
# address.
WEATHER_URL = os.environ.get("FERNWEH_WEATHER_URL", "http://127.0.0.1:8001")

# Mails become files below var/mails.
if django.VERSION >= (6, 1):
    MAILERS = {
        "default": {
            "BACKEND": "fernweh.mail.FileBackend",
            "OPTIONS": {"file_path": VAR_DIR / "mails"},
        }
    }
else:
    EMAIL_BACKEND = "fernweh.mail.FileBackend"
    EMAIL_FILE_PATH = VAR_DIR / "mails"
DEFAULT_FROM_EMAIL = "Fernweh <bookings@fernweh.example>"

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "fernweh.urls"
WSGI_APPLICATION = "fernweh.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
MEDIA_URL = "media/"
MEDIA_ROOT = VAR_DIR / "media"
