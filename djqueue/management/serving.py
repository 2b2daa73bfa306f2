"""A command that runs until a signal stops it."""

from __future__ import annotations

import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from djqueue.runtime.signals import leaving_at_once


class ServingCommand(BaseCommand):
    ends_process = False
    """Whether the process ends with the command: false for ``call_command``."""

    def run_from_argv(self, argv: list[str]) -> None:
        self.ends_process = True
        super().run_from_argv(argv)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Handle signals before the checks query a database that may not respond."""
        if threading.current_thread() is not threading.main_thread():
            name = type(self).__module__.rpartition(".")[2]
            raise CommandError(f"{name} must run in the main thread of its process, where Python handles signals.")
        with leaving_at_once():
            return super().execute(*args, **options)
