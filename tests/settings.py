"""Django settings of the test suite, on the database that DATABASE_URL names."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, unquote, urlsplit


def database_from_url(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "postgres",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": parts.port or "",
        "OPTIONS": {**dict(parse_qsl(parts.query)), "pool": False},
        "CONN_MAX_AGE": float(os.environ.get("DJQUEUE_CONN_MAX_AGE", "0")),
        "CONN_HEALTH_CHECKS": "DJQUEUE_CONN_HEALTH_CHECKS" in os.environ,
    }


# run.py and tests/database.py set DATABASE_URL. Linters load the settings too, and connect to nothing.
DATABASES = {
    "default": database_from_url(os.environ.get("DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/postgres"))
}

SECRET_KEY = "for tests only"
USE_TZ = os.environ.get("DJQUEUE_USE_TZ", "1") == "1"
TIME_ZONE = os.environ.get("DJQUEUE_TIME_ZONE", "UTC")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "djqueue",
    "tests.ledger",
    "tests.app",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
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
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def tasks(default: str) -> dict[str, object]:
    """TASKS with the default backend on this kind of store; the Redis backend has a name of its own, too."""
    options: dict[str, object] = {
        # A test of a worker without a store does not wait for ten minutes.
        "give_up_after_seconds": float(os.environ.get("DJQUEUE_GIVE_UP_AFTER", "600")),
        "queues": {"once": {"delivery": "at_most_once"}} if "DJQUEUE_ONCE" in os.environ else {},
        "shutdown_timeout_seconds": float(os.environ.get("DJQUEUE_SHUTDOWN_TIMEOUT", "30")),
        "retention": {"completed": float(os.environ["DJQUEUE_KEEP"])} if "DJQUEUE_KEEP" in os.environ else {},
        "poll_interval_seconds": float(os.environ.get("DJQUEUE_POLL_INTERVAL", "1")),
    }
    postgres = {
        "BACKEND": "djqueue.backends.PostgresBackend",
        "QUEUES": [],
        "OPTIONS": {
            **options,
            # What works by polling alone is tested without wake-ups, and what they do with a poll that is far away.
            "listen": os.environ.get("DJQUEUE_LISTEN", "1") == "1",
            "statement_timeout_seconds": float(os.environ.get("DJQUEUE_STATEMENT_TIMEOUT", "30")),
        },
    }
    if "REDIS_URL" not in os.environ:
        return {"default": postgres}
    redis = {
        "BACKEND": "djqueue.backends.RedisBackend",
        "QUEUES": [],
        "OPTIONS": {
            **options,
            "url": os.environ["REDIS_URL"],
            "outbox": os.environ.get("DJQUEUE_OUTBOX", "0") == "1",
        },
    }
    return {"default": {"postgres": postgres, "redis": redis}[default]}


TASKS = tasks(os.environ.get("DJQUEUE_STORE", "postgres"))
