"""django-tasks-db: Django's own tasks in the database, one job at a time in a process, connections kept open."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import django
import protocol
from django.conf import settings

# The worker imports the tasks from here; as __main__ the module would be another one.
sys.modules["drive_django_tasks_db"] = sys.modules[__name__]
url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path.lstrip("/"),
            "USER": unquote(url.username or ""),
            "PASSWORD": unquote(url.password or ""),
            "HOST": url.hostname,
            "PORT": url.port,
            "CONN_MAX_AGE": None,
        }
    },
    INSTALLED_APPS=["django_tasks_db"],
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    USE_TZ=True,
    DEBUG=False,
)
django.setup()

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
