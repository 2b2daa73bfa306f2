"""A project that has its jobs in Redis only, and a database that is no PostgreSQL."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS = {
    "default": {
        "BACKEND": "djqueue.backends.RedisBackend",
        "QUEUES": [],
        "OPTIONS": {"url": os.environ.get("REDIS_URL", "redis://127.0.0.1:1")},
    }
}
