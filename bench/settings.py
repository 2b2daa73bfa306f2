"""Django settings of the benchmarks: what a small project has, on the database that DATABASE_URL names."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.lstrip("/"),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": _url.hostname,
        "PORT": _url.port,
        "CONN_MAX_AGE": None,
    }
}
SECRET_KEY = "for benchmarks only"  # noqa: S105
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "djqueue", "bench"]
TASKS = {"default": {"BACKEND": "djqueue.backends.PostgresBackend", "QUEUES": []}}
