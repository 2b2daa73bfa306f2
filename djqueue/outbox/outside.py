"""Store the jobs of an ``enqueue_many`` outside a transaction, in a store that is not part of the database.

The ids are reserved first, so that a batch can be sent twice: the store ignores jobs that it already has.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from djqueue.exceptions import BulkInterrupted, EngineUnavailable
from djqueue.jobs.chunks import Ids
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule
from djqueue.outbox.pending_insert import PendingEngine, again
from djqueue.outbox.unique import refused

_WITHDRAWN = 1000
"""Number of jobs that one call deletes."""


class OutsideTransaction:
    def __init__(self, engine: PendingEngine) -> None:
        self._engine = engine
        self._stored = array("q")
        self.has_begun = False
        """Whether any job may have been stored."""

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]:
        if rule.is_exclusive:
            holders = self._engine.holders([str(job.unique_key) for job in jobs], rule=rule)
            if holders:
                return refused(jobs, holders)
        ids = self._reserve(len(jobs))
        with self._reporting():
            answers = again(lambda: self._engine.insert(jobs, rule=rule, ids=ids))
        self._stored.extend(answer.id for answer in answers if not answer.was_duplicate)
        return answers

    def insert_one(self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False) -> InsertedJob:
        [inserted] = self.insert([job], rule=rule)
        return inserted

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany:
        ids = self._reserve(len(arguments))
        with self._reporting():
            answer = again(lambda: self._engine.insert_many(job, arguments, ids=ids))
        self._stored.extend(ids)
        return answer

    def withdraw(self) -> None:
        """Delete the stored jobs of a failed call, except those that a worker has already started."""
        for some in (self._stored[first : first + _WITHDRAWN] for first in range(0, len(self._stored), _WITHDRAWN)):
            self._engine.delete(some)

    def progress(self) -> str:
        """Say how many jobs are stored so far."""
        return f"{len(self._stored):,} jobs are stored, and perhaps those of the batch that was being sent."

    def _reserve(self, count: int) -> Sequence[int]:
        # If no job is stored, the original error is enough.
        with self._reporting() if self._stored else nullcontext():
            return again(lambda: self._engine.reserve(count))

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report how many jobs were stored if the store stops answering."""
        self.has_begun = True
        try:
            yield
        except EngineUnavailable as error:
            raise BulkInterrupted(f"{error} {self.progress()}", Ids(self._stored)) from error
