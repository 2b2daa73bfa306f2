"""``manage.py runcron``: enqueue the jobs of the crontab until stopped."""

from __future__ import annotations

import argparse
import signal
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connections

from djqueue.maintenance.scheduler import Scheduler
from djqueue.management.backend import find_backend
from djqueue.runtime.logs import configure


class Command(BaseCommand):
    help = (
        "Enqueue the jobs of the crontab until stopped. Any number of them may run, beside workers with cron too: each time"
        " runs once."
    )
    requires_system_checks = ["djqueue"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", metavar="ALIAS", help="Which entry of TASKS to serve.")

    def handle(self, **options: Any) -> None:
        backend = find_backend(options["backend"])
        configure(options["verbosity"])
        if options["verbosity"]:
            self.stderr.write(f"djqueue cron: backend {options['backend']!r}. Ctrl-C stops it.")
        connections.close_all()
        scheduler = Scheduler(backend.engine.open_cron(), database=backend.settings.database)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: scheduler.stop())
        # In the main thread: a signal's handler wakes the loop, and what is being written is finished.
        scheduler.run()
