"""The Django app."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module

from django.apps import AppConfig

if (
    sys.argv[1:2] in (["runworker"], ["runcron"])
    and "djqueue.runtime.child" not in sys.modules  # a worker process sees the same command line
    and threading.current_thread() is threading.main_thread()
):
    # The command is loaded after the models of all apps, which can take seconds, and PID 1 of a container would not
    # hear a signal till then.
    from djqueue.runtime import logs, signals

    signals.leave_at_once()
    logs.tolerate_closed_streams()


class DjqueueConfig(AppConfig):
    name = "djqueue"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import_module("djqueue.checks")
        if "DJQUEUE_BENCHMARK" in os.environ:  # a worker that manage.py benchqueue started
            import_module("djqueue.benchmark.tasks")
