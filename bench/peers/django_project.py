"""A small Django project for the peers that are Django apps; known to their environment only."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings


def configure(app: str, tasks: dict[str, Any]) -> None:
    url = urlsplit(os.environ["DATABASE_URL"])
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": url.path.lstrip("/"),
                "USER": unquote(url.username or ""),
                "PASSWORD": unquote(url.password or ""),
                "HOST": url.hostname,
                "PORT": url.port,
                "CONN_MAX_AGE": None,
            }
        },
        INSTALLED_APPS=[app],
        TASKS={"default": tasks},
        USE_TZ=True,
        DEBUG=False,
    )
    django.setup()
