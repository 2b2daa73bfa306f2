"""``manage.py queuestats``: unfinished jobs, their age and the workers, by queue."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import CommandError
from django.db import Error as DatabaseError

from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.states import LIVE_STATES
from djqueue.management.arguments import add_backend
from djqueue.management.backends import database_problem, store_of
from djqueue.management.reporting import ReportingCommand
from djqueue.management.terminal import columns, plain


class Command(ReportingCommand):
    help = (
        "Show the queues: unfinished jobs by state, the age of the oldest available job, workers, and what is paused."
    )
    requires_system_checks = ["djqueue"]
    is_output_all = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object, for other programs.")
        add_backend(parser)

    def handle(self, **options: Any) -> None:
        store = store_of(options["backend"])
        try:
            stats = collect(store.engine, {*store.queues, *store.settings.queues})
        except DatabaseError as error:
            raise CommandError(database_problem(error, store.database_of_tables)) from error
        except EngineUnavailable as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(stats, indent=2) if options["json"] else _table(stats))


def collect(engine: Engine, configured: set[str]) -> dict[str, Any]:
    """Gather the figures as plain values, for JSON."""
    counts = {count.queue: count for count in engine.counts()}
    rules = {queue.name: queue for queue in engine.queues()}
    workers = engine.workers()
    served = {name for worker in workers for name in worker.queues}
    queues = []
    for name in sorted({*configured, *counts, *rules, *served}):
        count, rule = counts.get(name), rules.get(name)
        serving = [worker for worker in workers if name in worker.queues]
        queues.append(
            {
                "name": name,
                "states": {state.value: count.states.get(state.value, 0) if count else 0 for state in LIVE_STATES},
                "oldest_available_seconds": count.oldest_available_seconds if count else None,
                "paused": {"at": rule.paused_at.isoformat(), "by": rule.paused_by, "reason": rule.pause_reason}
                if rule and rule.paused_at
                else None,
                "workers": sum(worker.state == "alive" for worker in serving),
                "silent_workers": sum(worker.state == "silent" for worker in serving),
            }
        )
    return {
        "queues": queues,
        "workers": [
            {
                "id": str(worker.id),
                "name": worker.name,
                "hostname": worker.hostname,
                "pid": worker.pid,
                "state": worker.state,
                "silent_seconds": round(worker.silent_seconds, 3),
                "queues": sorted(worker.queues),
            }
            for worker in workers
        ],
    }


def _table(stats: dict[str, Any]) -> str:
    states = [state.value for state in LIVE_STATES]
    rows = [["queue", *states, "oldest", "workers", ""]]
    for queue in stats["queues"]:
        oldest = queue["oldest_available_seconds"]
        rows.append(
            [
                queue["name"],
                *(f"{queue['states'][state]:,}" for state in states),
                "-" if oldest is None else f"{oldest:,.1f} s",
                str(queue["workers"]),
                _note(queue),
            ]
        )
    lines = columns(rows, right=range(1, len(rows[0]) - 1)) if stats["queues"] else ["No queues yet."]
    lines += [
        f"Worker {plain(worker['name'])} is {worker['state']}: last heartbeat {worker['silent_seconds']:,.0f} s ago."
        for worker in stats["workers"]
        if worker["state"] in ("silent", "dead")
    ]
    return "\n".join(lines)


def _note(queue: dict[str, Any]) -> str:
    notes = []
    if paused := queue["paused"]:
        who = f" by {plain(paused['by'])}" if paused["by"] else ""
        notes.append(f"paused{who}" + (f": {plain(paused['reason'])}" if paused["reason"] else ""))
    elif not queue["workers"]:
        notes.append("not served")
    if queue["silent_workers"]:
        notes.append(f"{queue['silent_workers']} silent")
    return ", ".join(notes)
