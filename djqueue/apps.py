"""The Django app."""

from __future__ import annotations

import os
from importlib import import_module

from django.apps import AppConfig
from django.core import checks


class DjqueueConfig(AppConfig):
    name = "djqueue"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from djqueue.checks import check_backends, check_servers

        checks.register(check_backends)
        checks.register(check_servers, checks.Tags.database)
        if "DJQUEUE_BENCHMARK" in os.environ:  # a worker that manage.py benchqueue started
            import_module("djqueue.benchmark.tasks")
