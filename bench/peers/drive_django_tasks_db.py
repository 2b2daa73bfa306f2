"""django-tasks-db: Django's own tasks in the database, one job at a time in a process, connections kept open."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import protocol
from django_project import configure

# The worker imports the tasks from here; as __main__ the module would be another one.
sys.modules["drive_django_tasks_db"] = sys.modules[__name__]
configure("django_tasks_db", {"BACKEND": "django_tasks_db.DatabaseBackend"})

from django.core.management import call_command  # noqa: E402
from django.db import connections, transaction  # noqa: E402
from django.tasks import task  # noqa: E402


def bench(kind: str, number: int, due: float) -> None:
    protocol.run(kind, number, due)


bench.__module__ = "drive_django_tasks_db"
bench = task(bench)


class DjangoTasksDB(protocol.Driver):
    def setup(self) -> None:
        call_command("migrate", verbosity=0)

    def connect(self) -> None:
        connections["default"].ensure_connection()

    def close(self) -> None:
        connections.close_all()

    def add(self, kind: str, number: int, due: float) -> None:
        bench.enqueue(kind, number, due)

    def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        with transaction.atomic():
            for number in numbers:
                bench.enqueue(kind, number, 0)

    def add_at(self, kind: str, number: int, due: float) -> None:
        bench.using(run_after=datetime.fromtimestamp(due, UTC)).enqueue(kind, number, due)

    def work(self, options: dict[str, Any]) -> None:
        call_command("db_worker", interval=0.1, startup_delay=False, verbosity=0, reload=False)


if __name__ == "__main__":
    protocol.main(DjangoTasksDB())
