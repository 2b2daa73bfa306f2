"""Send jobs to a store outside the database when the caller's transaction commits.

Jobs enqueued in a transaction get their ids at once and are sent when Django reports the commit. A rollback of the
transaction, or of a savepoint, drops them. Until then they are kept as text, beyond a few megabytes in a temporary file, so
``enqueue_many`` of a million jobs needs no more memory in a transaction than outside one.

An error after the commit is logged with the ids and not raised: the caller's work is committed, and other callbacks must
still run. The jobs are lost, unless there is an outbox: then their rows remain, and the relay of the leader sends them.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue import telemetry
from djqueue.adapters.django import commit_hooks, is_registered, savepoints
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.moments import as_aware
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule
from djqueue.jobs.states import JobState
from djqueue.outbox.id_pool import IdPool
from djqueue.outbox.pending_insert import PendingEngine, PendingInsert
from djqueue.outbox.rows import Outbox
from djqueue.outbox.unique import holders_now, refused

_IN_MEMORY_BYTES = 4 * 1024 * 1024
_JOBS_TOGETHER = 1000
"""Maximum number of single enqueues that are sent together."""
_CHARACTERS_TOGETHER = 16_000_000
"""Maximum size of what is sent together: a thousand jobs with the largest arguments would take gigabytes."""
_PUSH_CHARACTERS = 1_000_000
"""Maximum size of one insert of many jobs, and so of one outbox row: databases limit the size of a statement."""


class AfterCommit:
    """The jobs enqueued in one transaction or savepoint. Accepts inserts, and is an ``on_commit`` hook."""

    def __init__(self, engine: PendingEngine, outbox: Outbox | None, stock: IdPool | None) -> None:
        """``stock`` goes with an outbox."""
        self._engine = engine
        self._outbox = outbox
        self.stock = stock
        self._ids = stock or engine
        self._rows: list[UUID] = []
        self._absence: EngineUnavailable | None = None
        self._texts = SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        # This also runs if Django drops the hook with its transaction.
        weakref.finalize(self, self._texts.close)

    def insert_one(self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False) -> InsertedJob:
        """See ``insert``."""
        [inserted] = self.insert([job], rule=rule)
        return inserted

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]:
        """Reserve an id for each job, or return the job that already holds its unique key."""
        if all(job.unique_key is None for job in jobs):
            return self._promise(jobs, rule)
        holders = holders_now(self._engine, self.stock, jobs, rule)
        if rule.is_exclusive and holders:
            return refused(jobs, holders)
        # A duplicate that changes its holder does so when it reaches the store. Any other is decided here.
        changes = rule.replace or rule.reschedule
        waiting = [job for job in jobs if changes or job.unique_key not in holders]
        promised = iter(self._promise(waiting, rule) if waiting else ())
        answers = []
        for job in jobs:
            holder = holders.get(str(job.unique_key))
            answer = next(promised) if changes or holder is None else holder
            answers.append(holder or answer)
        return answers

    def _promise(self, jobs: Sequence[NewJob], rule: UniqueRule) -> list[InsertedJob]:
        ids = self._ids.reserve(len(jobs))
        for first, last in _parts([len(job.args) + len(job.kwargs) for job in jobs]):
            self._add(PendingInsert(jobs=jobs[first:last], ids=ids[first:last], rule=rule))
        now = datetime.now(UTC)
        return [InsertedJob(id, _state(job, now), now) for id, job in zip(ids, jobs, strict=True)]

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany:
        """Reserve an id for each job."""
        ids = self._ids.reserve(len(arguments))
        for first, last in _parts([len(args) + len(kwargs) for args, kwargs in arguments]):
            self._add(PendingInsert(jobs=[job], ids=ids[first:last], arguments=arguments[first:last]))
        now = datetime.now(UTC)
        return InsertedMany(ids, _state(job, now), now)

    def __call__(self) -> None:
        """Send all jobs. Never raises: jobs that cannot be sent are lost, or left to the relay if there is an outbox."""
        if self.stock is not None and self.stock.is_away:
            return
        try:
            sent: list[UUID] = []
            rows = iter(self._rows)
            for pushes in _together(self._read()):
                for push, error in zip(pushes, self._send(pushes), strict=True):
                    row = next(rows, None)
                    if error is not None:
                        self._tell(push, error)
                    elif row is not None:
                        sent.append(row)
            if self._outbox is not None:
                self._outbox.delete(sent)
        except Exception as error:
            # With an outbox no job is lost: the relay finds the rows, and the store ignores jobs that it already has.
            telemetry.emit("djqueue.enqueue.failure", logging.ERROR, exc_info=error, error=str(error))

    def _add(self, push: PendingInsert) -> None:
        text = push.as_text()
        if self._outbox is not None:
            self._rows.append(self._outbox.add(text))
        self._texts.write(text.encode())
        self._texts.write(b"\n")

    def _read(self) -> Iterator[PendingInsert]:
        self._texts.seek(0)
        for line in self._texts:
            yield PendingInsert.from_text(line.decode())

    def _send(self, pushes: Sequence[PendingInsert]) -> list[Exception | None]:
        """Send several inserts together; return the error of each one that failed."""
        if self._absence is not None:
            # Trying each one alone would only make the caller wait for the same timeout again.
            return [self._absence] * len(pushes)
        try:
            _merged(pushes).send(self._engine)
        except EngineRefused as error:
            # One of them cannot be stored; the others can.
            return [error] if len(pushes) == 1 else [self._send([push])[0] for push in pushes]
        except Exception as error:
            if isinstance(error, EngineUnavailable):
                self._absence = error
                if self.stock is not None:
                    self.stock.note_absence()
            return [error] * len(pushes)
        return [None] * len(pushes)

    def _tell(self, push: PendingInsert, error: Exception) -> None:
        job = push.jobs[0]
        several = {"count": len(push.ids), "last_job": push.ids[-1]} if len(push.ids) > 1 else {}
        about: dict[str, Any] = {
            "job": push.ids[0],
            **several,
            "task": job.task,
            "queue": job.queue,
            "error": str(error),
        }
        if self._outbox is not None:
            telemetry.emit("djqueue.outbox.waiting", logging.WARNING, **about)
        else:
            telemetry.emit("djqueue.enqueue.lost", logging.ERROR, **about)


def following(
    connection: BaseDatabaseWrapper, backend: str, engine: PendingEngine, outbox: Outbox | None, stock: IdPool | None
) -> AfterCommit | None:
    """Return the object that accepts the inserts of the caller's transaction, or None if there is no transaction."""
    if not connection.in_atomic_block:
        if connection.connection is None or connection.autocommit:
            return None
        if outbox is not None:
            # Django does not report the end of a manually managed transaction. The relay will find the rows.
            return AfterCommit(engine, outbox, stock)
    pending: dict[str, tuple[weakref.ref[AfterCommit], int]] = connection.__dict__.setdefault("_djqueue_deferred", {})
    hooks = commit_hooks(connection)
    known, place = pending.get(backend, (None, 0))
    hook = None if known is None else known()
    # Django drops hooks with their savepoint, so each savepoint needs its own hook.
    if hook is not None and is_registered(connection, hook, place) and hooks[place][0] == set(savepoints(connection)):
        return hook
    hook = AfterCommit(engine, outbox, stock)
    transaction.on_commit(hook, using=connection.alias, robust=True)
    # A weak reference, so that a hook that Django drops does not keep its file open.
    pending[backend] = (weakref.ref(hook), len(hooks) - 1)
    return hook


def _parts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of parts that are within the size limits."""
    first, characters = 0, 0
    for place, size in enumerate(sizes):
        if characters and characters + size > _PUSH_CHARACTERS:
            yield first, place
            first, characters = place, 0
        characters += size
    yield first, len(sizes)


def _together(pushes: Iterable[PendingInsert]) -> Iterator[list[PendingInsert]]:
    """Yield the inserts in order, grouped into those that can be sent together."""
    some: list[PendingInsert] = []
    count = characters = 0
    for push in pushes:
        size = sum([len(job.args) + len(job.kwargs) for job in push.jobs])
        is_full = count + len(push.ids) > _JOBS_TOGETHER or characters + size > _CHARACTERS_TOGETHER
        if some and (is_full or not _is_like(some[-1], push)):
            yield some
            some, count, characters = [], 0, 0
        some.append(push)
        count += len(push.ids)
        characters += size
    if some:
        yield some


def _is_like(one: PendingInsert, other: PendingInsert) -> bool:
    return one.arguments is None and other.arguments is None and one.rule == other.rule


def _merged(pushes: Sequence[PendingInsert]) -> PendingInsert:
    if len(pushes) == 1:
        return pushes[0]
    jobs = [job for push in pushes for job in push.jobs]
    return replace(pushes[0], jobs=jobs, ids=[id for push in pushes for id in push.ids])


def _state(job: NewJob, now: datetime) -> str:
    if job.scheduled_at is not None:
        return JobState.SCHEDULED if as_aware(job.scheduled_at) > now else JobState.AVAILABLE
    return JobState.SCHEDULED if job.delay else JobState.AVAILABLE
