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

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING

from django.db import connections, transaction

from djqueue import conf
from djqueue.backends.base import Inserts, QueueBackend, rule_of
from djqueue.backends.deferred import Deferred, deferred
from djqueue.backends.items import Chunks, read_to_the_end
from djqueue.encoding import Encoded
from djqueue.outbox import Outbox
from djqueue.pushes import again
from djqueue.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule
from djqueue.tasks import Task

if TYPE_CHECKING:
    from djqueue.engines.redis import RedisEngine


class RedisBackend(QueueBackend):
    options_class = conf.RedisOptions

    @cached_property
    def settings(self) -> conf.RedisOptions:
        """The OPTIONS; raises ``InvalidOptions`` if they cannot work."""
        return conf.parse(self.options, conf.RedisOptions)

    @cached_property
    def engine(self) -> RedisEngine:
        return _engine(self.settings.url, self.settings.prefix)

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
        waiting = self._deferred()
        if waiting is not None and chunks.is_single:
            yield self._following(waiting, task), chunks
        elif waiting is not None or (self.outbox is not None and not chunks.is_single):
            # With an outbox the rows of all of them are one transaction. Otherwise it is a savepoint: what was read before
            # a bad item goes with it.
            with transaction.atomic(self.settings.database):
                waiting = self._deferred()
                assert waiting is not None
                yield self._following(waiting, task), chunks
        elif chunks.is_single:
            yield _Direct(self.engine), chunks
        else:
            with read_to_the_end(chunks) as all_chunks:
                yield _Direct(self.engine), all_chunks

    def _deferred(self) -> Deferred | None:
        return deferred(connections[self.settings.database], self.alias, self.engine, self.outbox)

    def _following(self, waiting: Deferred, task: Task) -> Inserts:
        return waiting if task.unique is None else _Keyed(self.engine, waiting, task)


@cache
def _engine(url: str, prefix: str) -> RedisEngine:
    """Return the engine of a store: one per process, for it keeps a connection per thread, and backends come and go."""
    from djqueue.engines.redis import RedisEngine

    return RedisEngine(url, prefix=prefix)


class _Keyed:
    """Jobs with unique keys, inside of a transaction."""

    def __init__(self, engine: RedisEngine, waiting: Deferred, task: Task) -> None:
        self._engine = engine
        self._waiting = waiting
        self._is_exclusive = task.unique is not None and task.unique.on_conflict == "raise"

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]:
        return self._waiting.insert(jobs, rule=rule, is_exclusive=self._is_exclusive)

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany:
        return self._waiting.insert_many(job, arguments)


class _Direct:
    """Many jobs, outside of a transaction: under ids of ours, so that a chunk which may have arrived can be sent again."""

    def __init__(self, engine: RedisEngine) -> None:
        self._engine = engine

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]:
        ids = self._engine.reserve(len(jobs))
        return again(lambda: self._engine.insert(jobs, rule=rule, ids=ids))

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany:
        ids = self._engine.reserve(len(arguments))
        return again(lambda: self._engine.insert_many(job, arguments, ids=ids))
