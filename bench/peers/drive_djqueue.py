"""djqueue: ``enqueue`` one by one, ``enqueue_many`` for batches, ``manage.py runworker`` as the worker."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])  # this directory holds modules named like packages

os.environ["DJANGO_SETTINGS_MODULE"] = "bench.peers.settings"

from bench.peers import protocol  # noqa: E402


class Djqueue(protocol.Driver):
    def setup(self) -> None:
        import django
        from django.core.management import call_command
        from django.db import connection

        django.setup()
        if connection.vendor == "postgresql":  # another store needs no tables
            call_command("migrate", verbosity=0)

    def open(self) -> None:
        import django

        django.setup()
        from bench.peers import tasks

        variant = os.environ.get("BENCH_VARIANT", "")
        self.tasks = {kind: tasks.named(kind, variant) for kind in protocol.KINDS}

    def connect(self) -> None:
        from django.db import connection

        connection.ensure_connection()

    def close(self) -> None:
        from django.db import connections

        connections.close_all()

    def add(self, kind: str, number: int, due: float) -> None:
        self.tasks[kind].enqueue(number, due)

    def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        self.tasks[kind].enqueue_many(((number, 0), {}) for number in numbers)

    def add_at(self, kind: str, number: int, due: float) -> None:
        self.tasks[kind].using(run_after=datetime.fromtimestamp(due, UTC)).enqueue(number, due)

    def work(self, options: dict[str, Any]) -> None:
        command = [
            *("-m", "django", "runworker", "-v", "0"),
            *("--concurrency", str(options["concurrency"])),
            *("--processes", str(options.get("processes", 1))),
        ]
        os.chdir(sys.path[0])
        os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    protocol.main(Djqueue())
