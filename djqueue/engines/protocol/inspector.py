"""Read what the store holds."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from djqueue.jobs.health import Health
from djqueue.jobs.records import Found, Job, JobFilter, Newest, QueueCounts, QueueRules, WorkerStatus


class Inspector(Protocol):
    def get(self, job_id: int) -> Job | None:
        """Return the job with this id, live or finished, or None."""

    def find(
        self, jobs: JobFilter, *, after: int = 0, last: int, limit: int = 1000, now: datetime | None = None
    ) -> list[int]:
        """Return the next ids above ``after`` and up to ``last`` (see ``count``), in ascending order."""

    def count(self, jobs: JobFilter, *, limit: int = 1_000_000, now: datetime | None = None) -> Found:
        """Count jobs, up to a limit."""

    def newest(
        self, jobs: JobFilter, *, before: int | None = None, limit: int = 100, now: datetime | None = None
    ) -> Newest:
        """Return the jobs with the highest ids, in descending order, below ``before`` if given.

        A user waits for this, so a search that finds little may stop before it has examined every job. ``before`` of the
        result says where to continue.
        """

    def now(self) -> datetime:
        """Return the time by the store's clock."""

    def counts(self) -> list[QueueCounts]:
        """Count live jobs by queue and state."""

    def queues(self) -> list[QueueRules]:
        """Return the queues for which an operator has stored settings, such as a pause."""

    def workers(self) -> list[WorkerStatus]:
        """Return the registered workers."""

    def health(self) -> Health:
        """Return what shows whether jobs are being processed. Values whose reads take too long are left out."""
