"""Jobs in Redis or Valkey: an insert follows the caller's transaction.

Outside of a transaction a job is in the store when ``enqueue`` returns. Inside of one it has its id at once and goes there
when the transaction commits (``deferred.py``); with ``outbox=True`` a row of the database sees to it that it arrives.

**Duplicates inside of a transaction.** Which job holds a unique key is decided when the job goes into the store, for only then
does it exist. ``enqueue`` looks there too, so what it can say is what PostgreSQL would say, of jobs that are there already:
one that holds the key is returned, or raised as ``DuplicateJob``, and that is the end of it, as a statement of PostgreSQL
decides when it is made. What it cannot see is a job that takes the key between then and the commit, or that waits in
another transaction, or in the same one: then no job comes of this id, and an event tells of it, as a warning if the task
says ``on_conflict="raise"``. To refuse such a task inside of transactions altogether would be stricter, and would break each
request under ATOMIC_REQUESTS and each TestCase for the sake of a race.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING

from django.db import connections, transaction

from djqueue import conf
from djqueue.backends.base import Inserts, QueueBackend
from djqueue.backends.chunks import Chunks, Ids, read_to_the_end
from djqueue.exceptions import BulkInterrupted, DuplicateJob, EngineUnavailable
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule
from djqueue.jobs.states import JobState
from djqueue.outbox.after_commit import AfterCommit, deferred
from djqueue.outbox.id_pool import IdPool
from djqueue.outbox.pending_insert import again
from djqueue.outbox.rows import Outbox
from djqueue.tasks.task import Task
from djqueue.tasks.unique import rule_of

if TYPE_CHECKING:
    from djqueue.engines.redis import RedisEngine


_WITHDRAWN = 1000
"""Jobs that are deleted by one call."""


class RedisBackend(QueueBackend):
    options_class = conf.RedisOptions

    @cached_property
    def settings(self) -> conf.RedisOptions:
        """The OPTIONS; raises ``InvalidOptions`` if they cannot work."""
        return conf.parse(self.options, conf.RedisOptions)

    @cached_property
    def engine(self) -> RedisEngine:
        return _engine(self.settings.url, self.settings.prefix, self.settings.answer_timeout_seconds)

    @cached_property
    def outbox(self) -> Outbox | None:
        return Outbox(self.alias, self.settings.database) if self.settings.outbox else None

    @property
    def database_of_tables(self) -> str | None:
        return self.settings.database if self.settings.outbox else None

    def insert_one(self, new: NewJob, task: Task) -> InsertedJob:
        waiting = self._deferred()
        if task.unique is None:
            [inserted] = self.engine.insert([new]) if waiting is None else waiting.insert([new])
        else:
            inserts = self.engine if waiting is None else _Keyed(self.engine, waiting, task)
            [inserted] = inserts.insert([new], rule=rule_of(task.unique))
        return inserted

    @contextmanager
    def inserting(self, task: Task, chunks: Chunks) -> Iterator[tuple[Inserts, Iterable[list[Encoded]]]]:
        is_single = chunks.is_single
        waiting = self._deferred()
        if waiting is not None and is_single:
            yield self._following(waiting, task), chunks
        elif waiting is not None or (self.outbox is not None and not is_single):
            # With an outbox the rows of all of them are one transaction. Otherwise it is a savepoint: what was read before
            # a bad item goes with it.
            with transaction.atomic(self.settings.database):
                waiting = self._deferred()
                assert waiting is not None
                yield self._following(waiting, task), chunks
        else:
            direct = _Direct(self.engine, task)
            try:
                with nullcontext(chunks) if is_single else read_to_the_end(chunks) as all_chunks:
                    yield direct, all_chunks
            except DuplicateJob:
                direct.withdraw()
                raise
            except KeyboardInterrupt as error:
                if direct.has_begun:
                    error.add_note(direct.reach())
                raise

    def _deferred(self) -> AfterCommit | None:
        stock = None if self.outbox is None else _stock(self.engine)
        return deferred(connections[self.settings.database], self.alias, self.engine, self.outbox, stock)

    def _following(self, waiting: AfterCommit, task: Task) -> Inserts:
        return waiting if task.unique is None else _Keyed(self.engine, waiting, task)


@cache
def _engine(url: str, prefix: str, answer_timeout_seconds: float) -> RedisEngine:
    """Return the engine of a store: one per process, for it keeps a connection per thread, and backends come and go."""
    from djqueue.engines.redis import RedisEngine

    return RedisEngine(url, prefix=prefix, answer_timeout_seconds=answer_timeout_seconds)


@cache
def _stock(engine: RedisEngine) -> IdPool:
    return IdPool(engine)


class _Keyed:
    """Jobs with unique keys, inside of a transaction."""

    def __init__(self, engine: RedisEngine, waiting: AfterCommit, task: Task) -> None:
        self._engine = engine
        self._waiting = waiting
        self._is_exclusive = _is_exclusive(task)

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]:
        holders = self._holders(jobs, rule)
        if self._is_exclusive and holders:
            return _refused(jobs, holders)
        # One that changes its holder does so when it comes in; any other has come to its end here.
        changes = rule.replace or rule.reschedule
        waiting = [job for job in jobs if changes or job.unique_key not in holders]
        promised = iter(self._waiting.insert(waiting, rule=rule, is_exclusive=self._is_exclusive) if waiting else ())
        answers = []
        for job in jobs:
            holder = holders.get(str(job.unique_key))
            answer = next(promised) if changes or holder is None else holder
            answers.append(holder or answer)
        return answers

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany:
        return self._waiting.insert_many(job, arguments)

    def _holders(self, jobs: Sequence[NewJob], rule: UniqueRule) -> dict[str, InsertedJob]:
        stock = self._waiting.stock
        # Which job a follow-up follows, if any, is seen when it comes in. Nor is a store asked that is away, if it need not be.
        if rule.follow_up or (stock is not None and stock.is_away and not self._is_exclusive):
            return {}
        try:
            return self._engine.holders([str(job.unique_key) for job in jobs], rule=rule)
        except EngineUnavailable:
            if stock is None or self._is_exclusive:
                raise
            stock.note_absence()
            return {}


class _Direct:
    """The jobs of an ``enqueue_many`` outside of a transaction: under ids of ours, so that a batch may be sent twice."""

    def __init__(self, engine: RedisEngine, task: Task) -> None:
        self._engine = engine
        self._is_exclusive = _is_exclusive(task)
        self._stored = array("q")
        self.has_begun = False
        """Whether something may be stored."""

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]:
        if self._is_exclusive:
            holders = self._engine.holders([str(job.unique_key) for job in jobs], rule=rule)
            if holders:
                return _refused(jobs, holders)
        ids = self._reserve(len(jobs))
        with self._told():
            answers = again(lambda: self._engine.insert(jobs, rule=rule, ids=ids))
        self._stored.extend(answer.id for answer in answers if not answer.was_duplicate)
        return answers

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany:
        ids = self._reserve(len(arguments))
        with self._told():
            answer = again(lambda: self._engine.insert_many(job, arguments, ids=ids))
        self._stored.extend(ids)
        return answer

    def withdraw(self) -> None:
        """Delete what is stored of a call that stores nothing, except what a worker has begun already."""
        for some in (self._stored[first : first + _WITHDRAWN] for first in range(0, len(self._stored), _WITHDRAWN)):
            self._engine.delete(some)

    def reach(self) -> str:
        """Say how far it came."""
        return f"{len(self._stored):,} jobs are stored, and perhaps those of the batch that was under way."

    def _reserve(self, count: int) -> Sequence[int]:
        # As long as nothing is stored, the error itself says all.
        with self._told() if self._stored else nullcontext():
            return again(lambda: self._engine.reserve(count))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say how far it came when the store goes away."""
        self.has_begun = True
        try:
            yield
        except EngineUnavailable as error:
            raise BulkInterrupted(f"{error} {self.reach()}", Ids(self._stored)) from error


def _is_exclusive(task: Task) -> bool:
    return task.unique is not None and task.unique.on_conflict == "raise"


def _refused(jobs: Sequence[NewJob], holders: Mapping[str, InsertedJob]) -> list[InsertedJob]:
    """Answer for jobs of which none is stored, because some are duplicates: whoever asked raises an error for the first of these."""
    nothing = InsertedJob(0, JobState.AVAILABLE, datetime.now(UTC))
    return [holders.get(str(job.unique_key), nothing) for job in jobs]
