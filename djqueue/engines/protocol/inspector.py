"""Read what the store holds."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Protocol

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


class Inspector(Protocol):
    def get(self, job_id: int) -> Job | None:
        """Return the job with this id, live or finished, or None."""

    def get_many(self, ids: Collection[int]) -> list[ListedJob]:
        """Return the jobs with these ids that exist, live or finished, in ascending order of their ids.

        Their arguments and errors are not read.
        """

    def page(self, jobs: JobFilter, *, after: str = "", before: str = "", limit: int = 100) -> JobPage:
        """Return a page of a list of jobs, newest first: the one after a position, before a position, or the first.

        ``jobs`` names live states only or final states only, and without any it means the live ones. The store decides the
        order: live jobs are listed as they were enqueued, finished jobs as they finished where that is indexed. A user waits
        for this: a search that finds little is stopped and says so.

        Raise ``InvalidPosition`` if the position is not one that an earlier page returned.
        """

    def tally(self, jobs: JobFilter) -> Tally | None:
        """Count the jobs of a list as far as that is quick; None if the store cannot count such jobs quickly."""

    def count_states(self, jobs: JobFilter, *, limit: timedelta) -> dict[str, int] | None:
        """Count the jobs of a list by state; None if that takes longer than ``limit``."""

    def quick_counts(self, *, limit: timedelta) -> list[QueueCounts] | None:
        """Count live jobs by queue and state; None if that takes longer than ``limit``."""

    def queue_names(self) -> list[str]:
        """Return the names of queues with jobs to run, as far as they are quickly known."""

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
