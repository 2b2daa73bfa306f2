"""Jobs in PostgreSQL: an insert joins the caller's transaction by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from djqueue import conf
from djqueue.backends.base import Inserts, QueueBackend
from djqueue.backends.chunks import Chunks
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, NewJob
from djqueue.tasks.task import Task
from djqueue.tasks.unique import rule_of

if TYPE_CHECKING:
    from djqueue.engines.postgres import PostgresEngine


class PostgresBackend(QueueBackend):
    supports_transactional = True

    options_class = conf.PostgresOptions

    @cached_property
    def settings(self) -> conf.PostgresOptions:
        """The OPTIONS; raises ``InvalidOptions`` if they cannot work."""
        return conf.parse(self.options, conf.PostgresOptions)

    @cached_property
    def engine(self) -> PostgresEngine:
        from djqueue.engines.postgres import PostgresEngine

        settings = self.settings
        return PostgresEngine(
            settings.database,
            listen=settings.listen,
            statement_timeout_seconds=settings.statement_timeout_seconds,
        )

    @property
    def database_of_tables(self) -> str:
        return self.settings.database

    def insert_one(self, new: NewJob, task: Task) -> InsertedJob:
        rule = LIVE_ONLY if task.unique is None else rule_of(task.unique)
        [inserted] = self.engine.insert([new], rule=rule, relaxed=self._is_relaxed(task))
        return inserted

    @contextmanager
    def inserting(self, task: Task, chunks: Chunks) -> Iterator[tuple[Inserts, Chunks]]:
        relaxed = self._is_relaxed(task)
        # A statement is atomic by itself; unique keys may take several. What a generator writes belongs to the transaction of
        # its jobs, so that begins before the first item is read.
        is_atomic = chunks.is_listed and chunks.is_single and task.unique is None and not relaxed
        with nullcontext() if is_atomic else self.engine.together(relaxed=relaxed):
            yield self.engine, chunks

    def _is_relaxed(self, task: Task) -> bool:
        rules = self.settings.queues.get(task.queue_name)
        return (task.durability or (rules and rules.durability) or self.settings.durability) == "relaxed"
