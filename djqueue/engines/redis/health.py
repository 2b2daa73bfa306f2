"""Read the health of the queue from the server."""

from __future__ import annotations

import json
from typing import Any

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import UNREADABLE, read_workers, unpack
from djqueue.engines.redis.server import inspect
from djqueue.jobs.health import Health, ParkedJob, QueueHealth
from djqueue.jobs.silence import REPORTED_SILENT_SECONDS

_MOST_PARKED = 10


def health(client: Client) -> Health:
    now, seen, about, beats, dead, lead, due, history, aside, entries, silent = client.run("health")
    workers = read_workers(now, about, beats, dead)
    serving = [
        worker
        for worker in workers
        if not worker.is_dead and not worker.is_draining and worker.silent_seconds < REPORTED_SILENT_SECONDS
    ]
    served = {queue for worker in serving for queue in worker.queues}
    found = {
        name.decode(errors="replace"): (None if waits is None else waits / 1e6, bool(paused))
        for name, waits, is_busy, paused in seen
        if waits is not None or is_busy or paused
    }
    leader = dict(_pairs(lead))
    # Lua packs an empty map as an empty list.
    loops = dict(unpack(leader[b"loops"])) if leader else {}
    # Scores are doubles; an edited one may be infinite.
    first_due = None if due is None else max(0.0, float(due))
    is_led = leader and int(leader[b"expires_at"]) > now
    return Health(
        queues=[
            QueueHealth(name, *found.get(name, (None, False)), name in served) for name in sorted({*found, *served})
        ],
        workers=workers,
        parked=[ParkedJob(int(id), _text(task), _reason(why)) for (id, task), why in _pairs(aside)[:_MOST_PARKED]],
        leader_seconds=(now - int(leader[b"elected_at"])) / 1e6 if is_led else None,
        loops={name: (now - at) / 1e6 for name, at in loops.items()},
        overdue_seconds=(now - first_due) / 1e6 if first_due is not None and first_due <= now else None,
        history_rows=history,
        cron_entries=entries,
        scheduler_seconds=None if silent is None else silent / 1e6,
        server=inspect(client),
    )


def _text(stored: bytes) -> str:
    return stored.decode(errors="replace") or UNREADABLE


def _reason(why: bytes) -> str:
    """Return why a job is parked: a script's text, or a worker's note."""
    text = why.decode(errors="replace")
    try:
        return str(json.loads(text)["parked"])
    except (ValueError, TypeError, KeyError):
        return text


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
