"""Find jobs by scanning the ids, some hundred jobs at a time, so that the server runs other scripts in between.

Only ids are indexed: an index per question would cost each job memory and each claim time, and only users and commands search.
The sets in which jobs of a state are kept anyway are used instead of a scan when they are small.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from djqueue.engines.redis.application import Application
from djqueue.engines.redis.codec import MICROSECOND, NUMBERS, clock, moment, read_job, read_pause, read_workers
from djqueue.engines.redis.health import health
from djqueue.jobs.health import Health
from djqueue.jobs.lists import (
    Found,
    JobFilter,
    Newest,
    QueueCounts,
    QueueRules,
    WorkerStatus,
)
from djqueue.jobs.records import Job
from djqueue.jobs.states import JobState

LOOK_AT = 500
"""How many jobs one run of a script examines."""
PATIENCE = 20_000
"""How many jobs a search examines before it returns what it has found so far, because a user waits for it."""
_COUNTED = (JobState.AVAILABLE, JobState.EXECUTING, JobState.SCHEDULED, JobState.RETRYABLE, JobState.SUSPENDED)
_END = 2**53
_FIND_ALL = 2**31


class RedisInspector(Application):
    def get(self, job_id: int) -> Job | None:
        if not 0 < job_id < 2**53:
            return None
        payload, *rest = self.client.run("get", job_id)
        return None if payload is None else read_job(job_id, payload, *rest)

    def now(self) -> datetime:
        seconds, rest = self.client.command("TIME")
        return moment(int(seconds) * 1_000_000 + int(rest))

    def counts(self) -> list[QueueCounts]:
        rows = []
        for queue, *numbers, oldest in self.client.run("counts"):
            states = {state.value: count for state, count in zip(_COUNTED, numbers, strict=True) if count}
            rows.append(
                QueueCounts(queue.decode(errors="replace"), states, None if oldest is None else oldest / 1_000_000)
            )
        return rows

    def quick_counts(self, *, limit: timedelta) -> list[QueueCounts]:
        """Never takes long: the server counts jobs anyway."""
        return self.counts()

    def queue_names(self) -> list[str]:
        return [count.queue for count in self.counts()]

    def queues(self) -> list[QueueRules]:
        flat = iter(self.client.run("queues"))
        return sorted(read_pause(name, about) for name, about in zip(flat, flat, strict=True))

    def workers(self) -> list[WorkerStatus]:
        return read_workers(*self.client.run("workers"))

    def health(self) -> Health:
        return health(self.client)

    def find(
        self, jobs: JobFilter, *, after: int = 0, last: int, limit: int = 1000, now: datetime | None = None
    ) -> list[int]:
        found: list[int] = []
        for ids in self._walk(jobs, after, last, limit, now):
            found += map(int, ids)
            if len(found) >= limit:
                break
        return found[: max(0, limit)]

    def count(self, jobs: JobFilter, *, limit: int = 1_000_000, now: datetime | None = None) -> Found:
        last = int(self.client.run("last_id"))
        count = 0
        for ids in self._walk(jobs, 0, last, _FIND_ALL, now):
            count += len(ids)
            if count >= limit:
                return Found(limit, last)
        return Found(count, last)

    def newest(
        self, jobs: JobFilter, *, before: int | None = None, limit: int = 100, now: datetime | None = None
    ) -> Newest:
        wanted, few = self._filter(jobs), self._few(jobs)
        found: list[Job] = []
        place = _END if before is None else before
        for _ in range(PATIENCE // LOOK_AT):
            end = bisect_left(few or (), place)
            these = few and few[max(0, end - LOOK_AT) : end][::-1]
            if few is not None and not these:
                return Newest(found, None)
            # One more than asked for tells whether there are others.
            on, rows = self.client.run(
                "newest", clock(now), wanted, place, LOOK_AT, limit + 1 - len(found), self._named(these)
            )
            found += [read_job(int(id), *row) for id, *row in rows]
            if len(found) > limit:
                return Newest(found[:limit], found[limit - 1].id)
            if not on:
                return Newest(found, None)
            place = int(on)
        return Newest(found, place)

    def _walk(self, jobs: JobFilter, after: int, last: int, limit: int, now: datetime | None) -> Iterator[list[bytes]]:
        wanted, few = self._filter(jobs), self._few(jobs)
        place: Any = after
        while place != b"":
            start, end = (bisect_right(few or (), id) for id in (int(place), last))
            these = few and few[start : min(end, start + LOOK_AT)]
            if few is not None and not these:
                return
            place, ids = self.client.run("find", clock(now), wanted, place, last, LOOK_AT, limit, self._named(these))
            limit -= len(ids)
            yield ids

    def _few(self, jobs: JobFilter) -> list[int] | None:
        """Return the sorted ids among which such jobs are, or None if they are too many."""
        ids = self.client.run("few", _digits(jobs), jobs.queue or "", PATIENCE)
        return None if ids is None else sorted({int(id) for id in ids if id.isdigit()})

    def _named(self, ids: list[int] | None) -> bytes:
        return b"" if ids is None else self.client.pack(list(map(str, ids)))

    def _filter(self, jobs: JobFilter) -> bytes:
        ages = [age is not None and age // MICROSECOND for age in (jobs.older_than, jobs.newer_than)]
        values: list[Any] = [
            _digits(jobs),
            jobs.queue is not None and jobs.queue,
            jobs.task is not None and jobs.task,
            jobs.task_prefix is not None and jobs.task_prefix,
            jobs.worker is not None and str(jobs.worker),
        ]
        # Lua changes the case of ASCII letters only.
        part = jobs.task_part is not None and jobs.task_part.encode().lower()
        return self.client.pack([*values, *ages, part])


def _digits(jobs: JobFilter) -> str:
    return "".join(str(NUMBERS[state]) for state in jobs.states or ())
