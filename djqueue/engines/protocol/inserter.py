"""Store new jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule


class Inserter(Protocol):
    """The verbs of an enqueue.

    **Errors.** One rule for every store: the error is that of the connection that the verb uses.

    - A store in a database of the project uses Django's own connection, in the caller's transaction. Its errors are
      Django's and are never wrapped: ``OperationalError`` when the database does not answer, ``DataError`` for a value
      that it refuses. Code around the transaction handles them as it handles those of any other query.
    - Any other store raises ``EngineUnavailable`` when it does not answer, ``EngineDenied`` when it denies access, and
      ``EngineRefused`` for a value that it refuses.
    - A value that no store accepts raises ``InvalidJob`` before any verb is called.

    After an error, a verb that stores several jobs has stored all or none. If the connection was lost before the response
    arrived, the jobs may have been stored; only ``is_undone`` says that they were not.
    """

    def insert_one(
        self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False, now: datetime | None = None
    ) -> InsertedJob:
        """Store a job as ``insert`` does, in as few steps as one job needs."""

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        rule: UniqueRule = LIVE_ONLY,
        relaxed: bool = False,
        now: datetime | None = None,
    ) -> list[InsertedJob]:
        """Store the jobs and return one record for each, in the same order; a duplicate returns the holder of its key.

        The result is the same as if the jobs were stored one after the other: the first job with a key is stored, and
        where the rule says that a duplicate changes the holder, the values of the last one win. A job that is executing
        or finished is never changed. The verb waits for an uncommitted holder of a key; if that holder is rolled back,
        the job is stored.

        ``relaxed``: if the store crashes, jobs that were stored a moment before, outside of any transaction of the
        caller, may be lost. The store may ignore it.

        Available jobs wake a sleeping worker as soon as they are visible: after the caller's commit.
        """

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded], *, now: datetime | None = None) -> InsertedMany:
        """Store jobs that differ in their arguments only and have no unique key: all or none. The fastest way to insert.

        ``job`` holds what they share. They run in the order of ``arguments``, and wake workers as ``insert`` does.
        """
