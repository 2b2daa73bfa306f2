"""The tasks of the benchmark. Imported by ``djqueue.apps`` where DJQUEUE_BENCHMARK is set, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any

from djqueue.benchmark.record import current
from djqueue.compat import DEFAULT_TASK_BACKEND_ALIAS, task_backends
from djqueue.tasks.task import task

QUEUE = "djqueue.benchmark"


def _allow_queue() -> str:
    """Let every backend take jobs of the queue in this process, whatever QUEUES says; return an alias that exists."""
    entries: dict[str, dict[str, Any]] = dict(task_backends.settings)
    for alias, entry in entries.items():
        queues = entry.get("QUEUES", [DEFAULT_TASK_BACKEND_ALIAS])
        if queues:
            entries[alias] = {**entry, "QUEUES": [*queues, QUEUE]}
    task_backends.settings = entries
    return DEFAULT_TASK_BACKEND_ALIAS if DEFAULT_TASK_BACKEND_ALIAS in entries else next(iter(entries))


_alias = _allow_queue()


@task(queue_name=QUEUE, backend=_alias)
def noop(index: int) -> None:
    current().begin(index)


@task(queue_name=QUEUE, backend=_alias)
async def wait(index: int, seconds: float) -> None:
    current().begin(index)
    await asyncio.sleep(seconds)


@task(queue_name=QUEUE, backend=_alias, max_attempts=3, backoff=0)
def fail_twice(index: int) -> None:
    if current().begin(index) < 3:
        raise ValueError("again")
