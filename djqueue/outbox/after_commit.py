"""Follow the caller's transaction with a store that takes no part in it.

What a transaction enqueues gets its ids at once and goes into the store when Django says that the transaction is committed:
a rollback, and that of a savepoint, takes it along. Until then it waits as text, beyond a few megabytes in a temporary file,
so ``enqueue_many`` of a million jobs takes no more memory inside of a transaction than outside.

What goes wrong after the commit must not reach the caller, whose work is done, nor anybody else's callback. It is logged,
with the ids, and the jobs are lost, unless there is an outbox: then their rows stay, and the relay of the leader sends them.
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
from djqueue.adapters.django import commit_hooks, savepoints
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
"""What was enqueued one by one goes into the store together."""
_CHARACTERS_TOGETHER = 16_000_000
"""A thousand jobs of the largest arguments would take gigabytes, here and in one message to the server."""
_PUSH_CHARACTERS = 1_000_000
"""What one push of many jobs takes, and so one row of an outbox: databases limit the size of a statement."""


class AfterCommit:
    """What one transaction enqueues, or one savepoint of it: it takes inserts, and is an ``on_commit`` hook."""

    def __init__(self, engine: PendingEngine, outbox: Outbox | None, stock: IdPool | None) -> None:
        """``stock`` goes with an outbox."""
        self._engine = engine
        self._outbox = outbox
        self.stock = stock
        self._ids = stock or engine
        self._rows: list[UUID] = []
        self._absence: EngineUnavailable | None = None
        self._texts = SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        # Also when Django drops the hook with its transaction.
        weakref.finalize(self, self._texts.close)

    def insert_one(self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False) -> InsertedJob:
        """See ``insert``."""
        [inserted] = self.insert([job], rule=rule)
        return inserted

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]:
        """Promise each job an id, or answer with the job that holds its unique key already."""
        if all(job.unique_key is None for job in jobs):
            return self._promise(jobs, rule)
        holders = holders_now(self._engine, self.stock, jobs, rule)
        if rule.is_exclusive and holders:
            return refused(jobs, holders)
        # A duplicate that changes its holder does so when it comes in; any other is answered here.
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
        """Promise each job an id."""
        ids = self._ids.reserve(len(arguments))
        for first, last in _parts([len(args) + len(kwargs) for args, kwargs in arguments]):
            self._add(PendingInsert(jobs=[job], ids=ids[first:last], arguments=arguments[first:last]))
        now = datetime.now(UTC)
        return InsertedMany(ids, _state(job, now), now)

    def __call__(self) -> None:
        """Send it all. Never raises: what cannot be sent is lost, or left to the relay."""
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
            # With an outbox, nothing is lost by it: the relay finds the rows, and the store that it has these jobs.
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
        """Send some together; return what kept each from its way."""
        if self._absence is not None:
            # Each would only wait for the same silence, and the caller with it.
            return [self._absence] * len(pushes)
        try:
            _merged(pushes).send(self._engine)
        except EngineRefused as error:
            # One of them cannot be stored. The others can.
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
    """Return what takes the inserts of the caller's transaction; None if there is no transaction."""
    if not connection.in_atomic_block:
        if connection.connection is None or connection.autocommit:
            return None
        if outbox is not None:
            # Nobody tells of the end of a transaction that is managed by hand: the relay will find the rows.
            return AfterCommit(engine, outbox, stock)
    pending: dict[str, tuple[weakref.ref[AfterCommit], int]] = connection.__dict__.setdefault("_djqueue_deferred", {})
    hooks = commit_hooks(connection)
    known, place = pending.get(backend, (None, 0))
    hook = None if known is None else known()
    # Django drops hooks with their savepoint, so one of another savepoint does not do. Looking at one place instead of
    # through the list keeps ten thousand enqueues beside ten thousand hooks of the application linear.
    if (
        hook is not None
        and place < len(hooks)
        and hooks[place][1] is hook
        and hooks[place][0] == set(savepoints(connection))
    ):
        return hook
    hook = AfterCommit(engine, outbox, stock)
    transaction.on_commit(hook, using=connection.alias, robust=True)
    # Weakly: a hook that Django drops must not keep its file open.
    pending[backend] = (weakref.ref(hook), len(hooks) - 1)
    return hook


def _parts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of parts that are not too large."""
    first, characters = 0, 0
    for place, size in enumerate(sizes):
        if characters and characters + size > _PUSH_CHARACTERS:
            yield first, place
            first, characters = place, 0
        characters += size
    yield first, len(sizes)


def _together(pushes: Iterable[PendingInsert]) -> Iterator[list[PendingInsert]]:
    """Yield what can be stored at once, in order."""
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
