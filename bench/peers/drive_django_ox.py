"""django-ox: Django's own tasks in the database, in threads, connections kept open, polled every 0.1 s."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import protocol
from django_project import configure

# The worker imports the tasks from here; as __main__ the module would be another one.
sys.modules["drive_django_ox"] = sys.modules[__name__]
configure("django_ox", {"BACKEND": "django_ox.backend.OxBackend", "QUEUES": []})

from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402
from django.tasks import task  # noqa: E402
from django_ox.bulk import enqueue_many  # noqa: E402


def bench(kind: str, number: int, due: float) -> None:
    protocol.run(kind, number, due)


bench.__module__ = "drive_django_ox"
bench = task(max_attempts=3, backoff=lambda *_: 0)(bench)


class DjangoOx(protocol.Driver):
    def setup(self) -> None:
        call_command("migrate", verbosity=0)

    def connect(self) -> None:
        connections["default"].ensure_connection()

    def close(self) -> None:
        connections.close_all()

    def add(self, kind: str, number: int, due: float) -> None:
        bench.enqueue(kind, number, due)

    def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        if calls := [((kind, number, 0), {}) for number in numbers]:
            enqueue_many(bench, calls)

    def add_at(self, kind: str, number: int, due: float) -> None:
        bench.using(run_after=datetime.fromtimestamp(due, UTC)).enqueue(kind, number, due)

    def work(self, options: dict[str, Any]) -> None:
        call_command("ox_worker", concurrency=options["concurrency"], interval=0.1, verbosity=0, skip_checks=True)


if __name__ == "__main__":
    protocol.main(DjangoOx())
