"""Lists of jobs: pages in the order of their ids, and counts of what the server counts anyway."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

from djqueue.engines.listing import BEGINNING, READ_LIMIT, invalid_position, states_of_list
from djqueue.engines.redis.inspector import RedisInspector
from djqueue.jobs.compression import readable
from djqueue.jobs.lists import JobFilter, JobPage, ListedJob, Tally
from djqueue.jobs.records import Job
from djqueue.jobs.states import LIVE_STATES

COUNTED_AT_ONCE = 1000
_TEXTS = {"args", "kwargs", "exception", "message"}


class RedisListing(RedisInspector):
    def get_many(self, ids: Collection[int]) -> list[ListedJob]:
        return [without_texts(job) for id in sorted(set(ids)) if (job := self.get(id)) is not None]

    def page(self, jobs: JobFilter, *, after: str = "", before: str = "", limit: int = 100) -> JobPage:
        """Only pages after a position can be read. A search that finds little is stopped after two seconds."""
        jobs = _either_live_or_finished(jobs)
        if before:
            # No page returns a position to read back from.
            raise invalid_position(before)
        found: list[Job] = []
        until = time.monotonic() + READ_LIMIT.total_seconds()
        place = _position(after)
        while True:
            step = self.newest(jobs, before=place, limit=limit - len(found))
            found += step.jobs
            place = step.before
            if len(found) == limit or place is None or time.monotonic() > until:
                break
        return JobPage(
            [listed(job) for job in found],
            older="" if place is None else str(place),
            is_first=not after,
            is_cut=place is not None and len(found) < limit,
        )

    def tally(self, jobs: JobFilter) -> Tally | None:
        """Counts the live jobs of one queue or of all, which the server counts anyway."""
        states = states_of_list(jobs)
        if not set(states) <= set(LIVE_STATES) or any(
            (jobs.task, jobs.task_prefix, jobs.task_part, jobs.worker, jobs.newer_than, jobs.older_than)
        ):
            return None
        found = (count for count in self.counts() if jobs.queue in (None, count.queue))
        return Tally(sum(count.states.get(state.value, 0) for count in found for state in states))

    def count_states(self, jobs: JobFilter, *, limit: timedelta) -> dict[str, int] | None:
        """Examines each job."""
        jobs = _either_live_or_finished(jobs)
        states: Counter[str] = Counter()
        until, before = time.monotonic() + limit.total_seconds(), None
        while True:
            step = self.newest(jobs, before=before, limit=COUNTED_AT_ONCE)
            states.update(job.state.value for job in step.jobs)
            if (before := step.before) is None:
                return dict(states)
            if time.monotonic() > until:
                return None


def _either_live_or_finished(jobs: JobFilter) -> JobFilter:
    return replace(jobs, states=states_of_list(jobs))


def without_texts(job: Job) -> ListedJob:
    """Shorten a job to what a list shows, without arguments and errors."""
    values = {name: getattr(job, name) for name in ListedJob._fields if name not in _TEXTS}
    return ListedJob(**{**values, "state": job.state.value})


def listed(job: Job) -> ListedJob:
    """Shorten a job to what a list shows."""
    errors: Any = job.errors
    last = errors[-1] if isinstance(errors, list) and errors else None
    error = last if isinstance(last, dict) else {}
    args, kwargs = readable(job.args, job.kwargs)
    return without_texts(job)._replace(
        args=_text(args),
        kwargs=_text(kwargs),
        exception=str(error.get("exception") or "")[:BEGINNING],
        message=str(error.get("message") or "")[:BEGINNING],
    )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:BEGINNING]


def _position(text: str) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    raise invalid_position(text)
