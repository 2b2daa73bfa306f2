"""Read the health of the queue from the database."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.db import connections

from djqueue.engines.postgres.reading import ReadTooSlow, time_limit
from djqueue.engines.postgres.rows import worker_of
from djqueue.engines.postgres.statements import sql
from djqueue.jobs.health import Health, ParkedJob, QueueHealth, TableHealth, VacuumBlocker

LIMIT = timedelta(seconds=5)


def health(alias: str) -> Health:
    """Read each part in a short query with a time limit: a health probe must not hang on the problem that it is to report."""
    facts: dict[str, Any] = {
        "queues": [QueueHealth(*row) for row in _read(alias, "health_queues")],
        "workers": [worker_of(row) for row in _read(alias, "workers")],
        "parked": [ParkedJob(*row) for row in _read(alias, "health_parked")],
    }
    for seconds, loops in _read(alias, "health_leader"):
        facts["leader_seconds"] = seconds
        # Django returns jsonb as text, because its JSONField decodes it.
        facts["loops"] = json.loads(loops) if isinstance(loops, str) else loops
    for entries, seconds in _read(alias, "health_crontab"):
        facts |= {"cron_entries": entries, "scheduler_seconds": seconds}
    for (overdue,) in _read(alias, "health_overdue"):
        facts["overdue_seconds"] = overdue
    tables: dict[str, Any] = {"blockers": [VacuumBlocker(*row) for row in _read(alias, "health_holders")]}
    for row in _read(alias, "health_tables"):
        names = (
            "dead_rows", "live_rows", "vacuumed_seconds", "is_autovacuum_on", "table_bytes", "fetch_index_bytes",
            "history_rows", "history_bytes", "notification_usage",
        )  # fmt: skip
        tables |= zip(names, row, strict=True)
        facts["history_rows"] = tables.pop("history_rows")
    return Health(**facts, tables=TableHealth(**tables))


def _read(alias: str, name: str) -> list[tuple[Any, ...]]:
    try:
        with time_limit(alias, LIMIT), connections[alias].cursor() as cursor:
            cursor.execute(sql(name), {})
            return list(cursor.fetchall())
    except ReadTooSlow:
        return []
