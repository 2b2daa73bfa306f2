"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig


class DjqueueConfig(AppConfig):
    name = "djqueue"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from djqueue import checks  # noqa: F401  registers the system checks
