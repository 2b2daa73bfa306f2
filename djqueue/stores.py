"""The store behind an entry of TASKS: its settings, its engine, its outbox and its queues.

The tasks framework makes a backend object per thread and per asyncio task. They share one ``Store`` per
alias and process, so its settings are parsed once and its engine keeps its connections. A store lasts as long as the entry
of TASKS that it was made from: after a change of the settings, the next backend object makes a new store.

::

    stores.store("default").engine       # raises ForeignBackend if the entry is not one of djqueue's
    stores.find("default")               # None instead
    stores.all()                         # the stores of all entries that can be used

Settings are parsed and the engine is made on first use, so that a project's modules can be imported despite invalid OPTIONS.
The packages of an engine (psycopg and libpq, redis-py) are imported with that engine, so a project on SQLite with its jobs
in Redis does not need libpq.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.core.signals import setting_changed
from django.db import connections, transaction

from djqueue import compat, conf
from djqueue.engines.protocol import Engine
from djqueue.exceptions import DuplicateJob, ForeignBackend, InvalidOptions, InvalidWorkflow
from djqueue.jobs.chunks import Chunks, Items, read_to_the_end
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.flows import FlowJob, InsertedFlow, NewFlow
from djqueue.jobs.records import BulkResult
from djqueue.outbox.after_commit import AfterCommit, following
from djqueue.outbox.id_pool import IdPool
from djqueue.outbox.inserts import Inserts
from djqueue.outbox.outside import OutsideTransaction
from djqueue.outbox.rows import Outbox

if TYPE_CHECKING:
    from djqueue.engines.postgres import PostgresEngine
    from djqueue.engines.protocol.flows import FlowStore
    from djqueue.engines.redis import RedisEngine

    _Inserting = AbstractContextManager[tuple[Inserts, Iterable[list[Encoded]]]]


class Store(ABC):
    """The settings, engine, outbox and queues of one entry of TASKS."""

    options_class: ClassVar[type[conf.Options]]

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        self.alias = alias
        self.params = params
        """The entry itself. Another object under the same alias gets another store."""
        self.options: object = params.get("OPTIONS", {})
        self.declared_queues: object = params.get("QUEUES", [compat.DEFAULT_TASK_QUEUE_NAME])
        """QUEUES as they were written, for the system check."""
        names = self.declared_queues
        # The framework would read "mail" as four queues and raise a TypeError for 4. The system check reports both.
        self.queues: frozenset[str] = (
            frozenset(map(str, names)) if isinstance(names, list | tuple | set | frozenset) else frozenset()
        )
        """The queues that jobs may be enqueued to. Empty: any."""

    @property
    @abstractmethod
    def settings(self) -> conf.Options:
        """The OPTIONS; raise ``InvalidOptions`` if they are not valid."""

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """The engine. It opens its first connection when its first method is called."""

    @property
    @abstractmethod
    def database_of_tables(self) -> str | None:
        """The alias in DATABASES where ``migrate`` must have created djqueue's tables. None: no tables are needed."""

    @property
    def outbox(self) -> Outbox | None:
        """The outbox in which jobs wait between their transaction and the store. None: there is no outbox."""
        return None

    @property
    def outboxes(self) -> list[Outbox]:
        """The outboxes of all entries whose jobs go into this store, because its leader sends the jobs of all of them."""
        return [other.outbox for other in all() if other.outbox is not None and other.has_jobs_of(self)]

    def has_jobs_of(self, other: Store) -> bool:
        """Return whether two entries keep their jobs in the same database or server."""
        return self.engine.store == other.engine.store

    def is_relaxed(self, queue: str, durability: str | None) -> bool:
        """Return whether an enqueue outside a transaction may return before the job is on disk."""
        return False

    @abstractmethod
    def inserter(self) -> Inserts:
        """Return the object that accepts new jobs now: the engine, or one that keeps jobs until the caller's transaction commits."""

    def insert_flow(self, flows: Sequence[NewFlow], jobs: Sequence[FlowJob]) -> InsertedFlow:
        """Store a workflow or batch, or a part of one, in the caller's transaction, if there is one."""
        return cast("FlowStore", self.engine).insert_flow(flows, jobs)

    @abstractmethod
    def together(self) -> AbstractContextManager[None]:
        """Let several inserts commit together, with the caller's transaction if there is one, where the store can."""

    @abstractmethod
    def inserting(self, chunks: Chunks, *, is_unique: bool, relaxed: bool) -> _Inserting:
        """Open the object that accepts the jobs of one ``enqueue_many``, all or none; yield it with the chunks to read."""


class PostgresStore(Store):
    """Jobs in a database of the project: an insert joins the caller's transaction by itself."""

    options_class = conf.PostgresOptions

    @cached_property
    def settings(self) -> conf.PostgresOptions:
        return conf.parse(self.options, conf.PostgresOptions)

    @cached_property
    def engine(self) -> PostgresEngine:
        from djqueue.engines.postgres import PostgresEngine

        settings = self.settings
        return PostgresEngine(
            settings.database, listen=settings.listen, statement_timeout_seconds=settings.statement_timeout_seconds
        )

    @property
    def database_of_tables(self) -> str:
        return self.settings.database

    def is_relaxed(self, queue: str, durability: str | None) -> bool:
        rules = self.settings.queues.get(queue)
        return (durability or (rules and rules.durability) or self.settings.durability) == "relaxed"

    def inserter(self) -> Inserts:
        return self.engine

    def together(self) -> AbstractContextManager[None]:
        return self.engine.together()

    @contextmanager
    def inserting(self, chunks: Chunks, *, is_unique: bool, relaxed: bool) -> Iterator[tuple[Inserts, Chunks]]:
        # One statement is atomic, but unique keys may take several. The writes of a generator belong to the transaction
        # of its jobs, so the transaction begins before the first item is read.
        is_atomic = chunks.is_listed and chunks.is_single and not is_unique and not relaxed
        with nullcontext() if is_atomic else self.engine.together(relaxed=relaxed):
            yield self.engine, chunks


class RedisStore(Store):
    """Jobs in Redis or Valkey: an insert follows the caller's transaction.

    Outside a transaction, the job is in the store when ``enqueue`` returns. In a transaction, the job gets its id at once
    and is sent when the transaction commits (``outbox/after_commit.py``). With ``outbox=True``, a row in the database
    ensures that the job arrives.
    """

    options_class = conf.RedisOptions

    @cached_property
    def settings(self) -> conf.RedisOptions:
        return conf.parse(self.options, conf.RedisOptions)

    @cached_property
    def engine(self) -> RedisEngine:
        return _redis_engine(self.settings.url, self.settings.prefix, self.settings.answer_timeout_seconds)

    @cached_property
    def outbox(self) -> Outbox | None:
        return Outbox(self.alias, self.settings.database) if self.settings.outbox else None

    @property
    def database_of_tables(self) -> str | None:
        return self.settings.database if self.settings.outbox else None

    def inserter(self) -> Inserts:
        return self._following() or self.engine

    def insert_flow(self, flows: Sequence[NewFlow], jobs: Sequence[FlowJob]) -> InsertedFlow:
        connection = connections[self.settings.database]
        if connection.in_atomic_block or not (connection.connection is None or connection.autocommit):
            # It would be in the store at once, and stay there if the transaction is rolled back.
            raise InvalidWorkflow(
                f"The jobs of {self.alias!r} are not in the database, so a workflow cannot be stored with a transaction of"
                f" {self.settings.database!r}. Use transaction.on_commit(workflow.enqueue)."
            )
        return super().insert_flow(flows, jobs)

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def inserting(
        self, chunks: Chunks, *, is_unique: bool, relaxed: bool
    ) -> Iterator[tuple[Inserts, Iterable[list[Encoded]]]]:
        is_single = chunks.is_single
        waiting = self._following()
        if waiting is not None and is_single:
            yield waiting, chunks
        elif waiting is not None or (self.outbox is not None and not is_single):
            # With an outbox, the rows of all jobs are written in one transaction. Otherwise a savepoint ensures that items
            # which were read before a bad item are undone.
            with transaction.atomic(self.settings.database):
                waiting = self._following()
                assert waiting is not None
                yield waiting, chunks
        else:
            direct = OutsideTransaction(self.engine)
            try:
                with nullcontext(chunks) if is_single else read_to_the_end(chunks) as all_chunks:
                    yield direct, all_chunks
            except DuplicateJob:
                direct.withdraw()
                raise
            except KeyboardInterrupt as error:
                if direct.has_begun:
                    error.add_note(direct.progress())
                raise

    @cached_property
    def _id_pool(self) -> IdPool | None:
        return None if self.outbox is None else _id_pool(self.engine)

    def _following(self) -> AfterCommit | None:
        return following(connections[self.settings.database], self.alias, self.engine, self.outbox, self._id_pool)


@cache
def _redis_engine(url: str, prefix: str, answer_timeout_seconds: float) -> RedisEngine:
    """Return the engine of a server. Entries of TASKS for the same server share its connections."""
    from djqueue.engines.redis import RedisEngine

    return RedisEngine(url, prefix=prefix, answer_timeout_seconds=answer_timeout_seconds)


@cache
def _id_pool(engine: RedisEngine) -> IdPool:
    return IdPool(engine)


class StoreBackend(compat.BaseTaskBackend):
    """A backend whose jobs djqueue stores. ``djqueue.backends`` has the implementations."""

    store_class: ClassVar[type[Store]]

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self.store = _open(self.store_class, alias, params)
        super().__init__(alias, {**params, "QUEUES": self.store.queues})

    @abstractmethod
    def enqueue_many(
        self,
        task: compat.Task[..., Any],
        items: Items,
        *,
        batch_size: int = 5000,
        on_progress: Callable[[int], None] | None = None,
    ) -> BulkResult:
        """Store one job per pair of args and kwargs, all or none, up to ``batch_size`` per statement."""

    @abstractmethod
    def enqueue_workflow(self, work: Any, *, whole_id: int | None = None) -> Any:
        """Store a chain, a group or a workflow, all or nothing; with ``whole_id``, as a part of a stored one."""


_stores: dict[str, Store] = {}
_lock = threading.Lock()


def store(alias: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> Store:
    """Return the store of an entry of TASKS.

    Raise ``ForeignBackend`` if the entry is not one of djqueue's, ``InvalidTaskBackend`` if there is none.
    """
    if (found := find(alias)) is None:
        raise ForeignBackend(
            f"The backend {alias!r} in TASKS is {type(compat.task_backends[alias]).__name__}, which keeps no jobs of"
            " djqueue. Use djqueue.backends.PostgresBackend or RedisBackend."
        )
    return found


def find(alias: str) -> Store | None:
    """Return the store of an entry of TASKS; None if the entry is not one of djqueue's."""
    backend = compat.task_backends[alias]
    return backend.store if isinstance(backend, StoreBackend) else None


def all() -> Iterator[Store]:
    """Yield the stores of all entries of TASKS with valid settings; the system checks report the others."""
    for alias in compat.task_backends:
        # The engine parses the settings and imports its packages, which may be missing.
        with suppress(compat.InvalidTaskBackend, InvalidOptions, ImportError):
            if (found := find(alias)) is not None and found.engine.store:
                yield found


def _open(kind: type[Store], alias: str, params: dict[str, Any]) -> Store:
    known = _stores.get(alias)
    if known is not None and known.params is params:
        return known
    with _lock:
        known = _stores.get(alias)
        if known is None or known.params is not params:
            known = _stores[alias] = kind(alias, params)
        return known


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "TASKS":
        _stores.clear()


setting_changed.connect(_forget)
