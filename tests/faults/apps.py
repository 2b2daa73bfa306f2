from __future__ import annotations

import warnings

from django.apps import AppConfig


class FaultsConfig(AppConfig):
    name = "tests.faults"

    def ready(self) -> None:
        """Ask the database something, so that a connection is open before anything of the worker has started."""
        from django.contrib.auth.models import Group

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Group.objects.exists()
