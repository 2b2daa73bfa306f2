"""Read jobs, queues and workers on the application's connection."""

from __future__ import annotations

from datetime import datetime, timedelta

from djqueue.engines.postgres.health import health
from djqueue.engines.postgres.listing import PostgresListing, filter_params
from djqueue.engines.postgres.reading import ReadTooSlow, queue_names, time_limit
from djqueue.engines.postgres.rows import job_of, worker_of
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
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState

NAMES_LIMIT = timedelta(milliseconds=200)
_END = 2**63 - 1


class PostgresInspector(PostgresListing):
    def get(self, job_id: int) -> Job | None:
        if not 0 < job_id < 2**63:
            return None
        rows = self.execute("get", {"id": job_id})
        return job_of(rows[0]) if rows else None

    def quick_counts(self, *, limit: timedelta) -> list[QueueCounts] | None:
        try:
            with time_limit(self.alias, limit):
                return self.counts()
        except ReadTooSlow:
            return None

    def queue_names(self) -> list[str]:
        """Takes one index descent per queue."""
        try:
            with time_limit(self.alias, NAMES_LIMIT):
                return queue_names(self.alias)
        except ReadTooSlow:
            # Dead entries at the head of the index: VACUUM is behind. Fewer names are better than none.
            return []

    def find(
        self, jobs: JobFilter, *, after: int = 0, last: int, limit: int = 1000, now: datetime | None = None
    ) -> list[int]:
        params = {**filter_params(jobs), "after": after, "last": last, "limit": limit, "now": now}
        return sorted(id for table in _tables(jobs) for (id,) in self.execute(f"find_{table}", params))[:limit]

    def count(self, jobs: JobFilter, *, limit: int = 1_000_000, now: datetime | None = None) -> Found:
        count = last = 0
        for table in _tables(jobs):
            [(more, newest)] = self.execute(f"count_{table}", {**filter_params(jobs), "limit": limit, "now": now})
            count, last = min(limit, count + more), max(last, newest)
        return Found(count, last)

    def newest(
        self, jobs: JobFilter, *, before: int | None = None, limit: int = 100, now: datetime | None = None
    ) -> Newest:
        # One more than asked for tells whether there are others.
        params = {
            **filter_params(jobs),
            "before": _END if before is None else before,
            "limit": limit + 1,
            "now": now,
        }
        rows = (row for table in _tables(jobs) for row in self.execute(f"newest_{table}", params))
        # By id: a job that ends between the two statements is in both answers, and the later is true.
        found = sorted({row[0]: row for row in rows}.values(), reverse=True)
        newest = [job_of(row) for row in found[:limit]]
        return Newest(newest, newest[-1].id if len(found) > limit else None)

    def now(self) -> datetime:
        [(now,)] = self.execute("now", {})
        return now  # type: ignore[no-any-return]

    def counts(self) -> list[QueueCounts]:
        queues: dict[str, dict[str, int]] = {}
        oldest: dict[str, float] = {}
        for queue, state, count, oldest_seconds in self.execute("counts", {}):
            queues.setdefault(queue, {})[state] = count
            if oldest_seconds is not None:
                oldest[queue] = oldest_seconds
        return [QueueCounts(queue, states, oldest.get(queue)) for queue, states in queues.items()]

    def queues(self) -> list[QueueRules]:
        return list(map(QueueRules._make, self.execute("queues", {})))

    def workers(self) -> list[WorkerStatus]:
        return list(map(worker_of, self.execute("workers", {})))

    def health(self) -> Health:
        return health(self.alias)


def _tables(jobs: JobFilter) -> list[str]:
    """Name the tables that can hold such jobs."""
    states = jobs.states or tuple(JobState)
    return [
        name
        for name, held in (("live", LIVE_STATES), ("finished", FINAL_STATES))
        if any(state in held for state in states)
    ]
