"""Settings of djqueue in the comparison: those of the other benchmarks, with its own tasks and the store under test."""

from __future__ import annotations

import os

from bench.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "bench.peers"]  # noqa: F405
if os.environ.get("BENCH_VARIANT") == "redis":
    TASKS = {
        "default": {
            "BACKEND": "djqueue.backends.RedisBackend",
            "QUEUES": [],
            "OPTIONS": {"url": os.environ["REDIS_URL"]},
        }
    }
    # Nothing of it may need PostgreSQL.
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
