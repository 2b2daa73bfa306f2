"""``manage.py runcron``: enqueue the jobs of the crontab until stopped."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from djqueue.exceptions import EngineDenied
from djqueue.maintenance.scheduler import Scheduler
from djqueue.management.arguments import add_backend
from djqueue.management.backends import store_of
from djqueue.management.serving import ServingCommand
from djqueue.management.terminal import notice
from djqueue.runtime.logs import configure
from djqueue.runtime.signals import STOP_SIGNALS, SignalPipe


class Command(ServingCommand):
    help = (
        "Enqueue the jobs of the crontab until stopped. You can run several, also beside workers that do the same: each"
        " scheduled time is enqueued once."
    )
    requires_system_checks = ["djqueue"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_backend(parser)

    def handle(self, **options: Any) -> None:
        store = store_of(options["backend"])
        configure(options["verbosity"])
        connections.close_all()
        scheduler = _FirstDenialEnds(store.engine.open_cron(), store=store.engine.store)
        stop_requests: list[int] = []
        stop = partial(stop_requests.append, 1)
        with SignalPipe(dict.fromkeys(STOP_SIGNALS, stop), ends_process=self.ends_process) as signals:
            # Only now, when a stop signal ends the loop in order.
            if options["verbosity"]:
                notice(self, f"djqueue cron: backend {options['backend']!r}. Ctrl-C to stop.")
            scheduler.start()
            while not stop_requests and scheduler.is_alive:
                signals.wait([], 1.0)
        # Exit if the thread has died, so that a process manager starts another.
        code = 0 if scheduler.is_alive else 1
        scheduler.stop()
        scheduler.join(10)
        if scheduler.refusal:
            raise CommandError(scheduler.refusal)
        sys.exit(code)


class _FirstDenialEnds(Scheduler):
    """End, like a worker, if the store denies access before the first run: retrying does not correct settings or rights."""

    refusal = ""

    def run_once(self, now: datetime | None = None) -> float:
        try:
            return super().run_once(now)
        except EngineDenied as error:
            if self.last_run is not None:
                raise
            self.refusal = str(error)
            self.stop()
            return 0.0
