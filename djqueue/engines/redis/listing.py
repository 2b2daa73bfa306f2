"""Lists of jobs: pages in the order of their ids, and counts of what the server counts anyway."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from djqueue.exceptions import InvalidPosition
from djqueue.jobs.compression import readable
from djqueue.jobs.records import Job, JobFilter, JobPage, ListedJob, Newest, QueueCounts, Tally
from djqueue.jobs.states import LIVE_STATES

READ_LIMIT = timedelta(seconds=2)
COUNTED_AT_ONCE = 1000
BEGINNING = 161
"""How many characters of arguments and messages a row has."""


def page(newest: Callable[..., Newest], jobs: JobFilter, after: str, limit: int) -> JobPage:
    """Read a page; a search that finds little gets some time."""
    found: list[Job] = []
    until = time.monotonic() + READ_LIMIT.total_seconds()
    before = _position(after)
    while True:
        step = newest(jobs, before=before, limit=limit - len(found))
        found += step.jobs
        before = step.before
        if len(found) == limit or before is None or time.monotonic() > until:
            break
    return JobPage(
        [listed(job) for job in found],
        older="" if before is None else str(before),
        is_first=not after,
        is_cut=before is not None and len(found) < limit,
    )


def tally(counts: Callable[[], Sequence[QueueCounts]], jobs: JobFilter) -> Tally | None:
    """Add up the counts of the queues; None if they do not tell."""
    states = jobs.states or LIVE_STATES
    if not set(states) <= set(LIVE_STATES) or any(
        (jobs.task, jobs.task_prefix, jobs.task_part, jobs.worker, jobs.newer_than, jobs.older_than)
    ):
        return None
    found = (count for count in counts() if jobs.queue in (None, count.queue))
    return Tally(sum(count.states.get(state.value, 0) for count in found for state in states))


def count_states(newest: Callable[..., Newest], jobs: JobFilter, limit: timedelta) -> dict[str, int] | None:
    """Count by looking at each job, for as long as ``limit``."""
    states: Counter[str] = Counter()
    until, before = time.monotonic() + limit.total_seconds(), None
    while True:
        step = newest(jobs, before=before, limit=COUNTED_AT_ONCE)
        states.update(job.state.value for job in step.jobs)
        if (before := step.before) is None:
            return states
        if time.monotonic() > until:
            return None


def listed(job: Job) -> ListedJob:
    """Shorten a job to what a list shows."""
    errors: Any = job.errors
    last = errors[-1] if isinstance(errors, list) and errors else None
    error = last if isinstance(last, dict) else {}
    args, kwargs = readable(job.args, job.kwargs)
    values = {name: getattr(job, name) for name in ListedJob._fields if hasattr(job, name)}
    values |= {
        "state": job.state.value,
        "args": _text(args),
        "kwargs": _text(kwargs),
        "exception": str(error.get("exception") or ""),
        "message": str(error.get("message") or "")[:BEGINNING],
    }
    return ListedJob(**values)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:BEGINNING]


def _position(text: str) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    raise InvalidPosition(f"Invalid position {text!r:.80}: use one that an earlier page returned.")
