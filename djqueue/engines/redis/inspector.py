"""Look for jobs by what they are: walks along the ids that there are, some hundred jobs at a time.

There is no index but that of the ids: one for every question would cost every job memory and every claim time, and who asks is a
person or a command. Between two pages the server does what it has to do. But it is known where jobs of a state are kept, for
other ends: when they are few, nobody walks past a million others to find them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from djqueue.engines.redis import listing
from djqueue.engines.redis.application import Application
from djqueue.engines.redis.codec import MICROSECOND, NUMBERS, clock, moment, read_job, read_pause, read_worker
from djqueue.engines.redis.health import health
from djqueue.jobs.health import Health
from djqueue.jobs.lists import (
    Found,
    JobFilter,
    JobPage,
    ListedJob,
    Newest,
    QueueCounts,
    QueueRules,
    Tally,
    WorkerStatus,
)
from djqueue.jobs.records import Job
from djqueue.jobs.states import JobState

LOOK_AT = 500
"""How many jobs one page looks at."""
PATIENCE = 20_000
"""How many jobs are looked at before somebody who waits is given what was found so far."""
_COUNTED = (JobState.AVAILABLE, JobState.EXECUTING, JobState.SCHEDULED, JobState.RETRYABLE, JobState.SUSPENDED)
_END = 2**53
_FIND_ALL = 2**31


class RedisInspector(Application):
    def get(self, job_id: int) -> Job | None:
        """Return the job, live or finished; None if there is none of this id."""
        if not 0 < job_id < 2**53:
            return None
        payload, *rest = self.client.run("get", job_id)
        return None if payload is None else read_job(job_id, payload, *rest)

    def now(self) -> datetime:
        """Return the time by the server's clock."""
        seconds, rest = self.client.command("TIME")
        return moment(int(seconds) * 1_000_000 + int(rest))

    def counts(self) -> list[QueueCounts]:
        """Count live jobs by queue and state."""
        rows = []
        for queue, *numbers, oldest in self.client.run("counts"):
            states = {state.value: count for state, count in zip(_COUNTED, numbers, strict=True) if count}
            rows.append(
                QueueCounts(queue.decode(errors="replace"), states, None if oldest is None else oldest / 1_000_000)
            )
        return rows

    def get_many(self, ids: Collection[int]) -> list[ListedJob]:
        return [listing.without_texts(job) for id in sorted(set(ids)) if (job := self.get(id)) is not None]

    def page(self, jobs: JobFilter, *, after: str = "", before: str = "", limit: int = 100) -> JobPage:
        """Return a page of a list of jobs; only pages after a position can be read."""
        return listing.page(self.newest, jobs, after, before, limit)

    def tally(self, jobs: JobFilter) -> Tally | None:
        """Count live jobs of one queue or all, which the server counts anyway; None for any others."""
        return listing.tally(self.counts, jobs)

    def count_states(self, jobs: JobFilter, *, limit: timedelta) -> dict[str, int] | None:
        return listing.count_states(self.newest, jobs, limit)

    def quick_counts(self, *, limit: timedelta) -> list[QueueCounts]:
        """Count live jobs by queue and state, which the server does anyway."""
        return self.counts()

    def queue_names(self) -> list[str]:
        """Return the names of queues with live jobs."""
        return [count.queue for count in self.counts()]

    def queues(self) -> list[QueueRules]:
        """Return the queues about which somebody decided something."""
        flat = iter(self.client.run("queues"))
        return sorted(read_pause(name, about) for name, about in zip(flat, flat, strict=True))

    def workers(self) -> list[WorkerStatus]:
        """Return the workers that the store knows."""
        now, about, beats, dead = self.client.run("workers")
        beat_of = dict(zip(beats[::2], beats[1::2], strict=True))
        found = []
        for id, info in zip(about[::2], about[1::2], strict=True):
            if (read := read_worker(id, info, beat_of.get(id))) is None:
                continue
            (name, hostname, pid, queues, concurrency), beat_at, is_draining = read
            silent = (now - beat_at) / 1e6
            found.append(
                WorkerStatus(
                    UUID(id.decode()), name, hostname, pid, queues, concurrency, silent, is_draining, id in dead
                )
            )
        return sorted(found, key=lambda worker: (worker.name, worker.id))

    def health(self) -> Health:
        """Look at everything that tells whether jobs flow."""
        return health(self.client)

    def find(
        self, jobs: JobFilter, *, after: int = 0, last: int, limit: int = 1000, now: datetime | None = None
    ) -> list[int]:
        """Return the next ids, in their order, above ``after`` and up to ``last``."""
        found: list[int] = []
        for ids in self._walk(jobs, after, last, limit, now):
            found += map(int, ids)
            if len(found) >= limit:
                break
        return found[: max(0, limit)]

    def count(self, jobs: JobFilter, *, limit: int = 1_000_000, now: datetime | None = None) -> Found:
        """Count jobs, up to a limit."""
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
        """Return the jobs of the highest ids, highest first."""
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
        """Return the ids, in their order, among which such jobs are, if they are few; None: all that there are."""
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
    return "".join(str(NUMBERS[state]) for state in jobs.states)
