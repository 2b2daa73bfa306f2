"""The PostgreSQL engine: it inserts jobs in the caller's transaction, and opens the other roles."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from django.db import DatabaseError, connections, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.rows import TupleRow

from djqueue.engines.postgres.at_most_once import taken_statements
from djqueue.engines.postgres.bulk import copy_jobs
from djqueue.engines.postgres.columns import ack_columns, texts
from djqueue.engines.postgres.connection import LOCK_TIMEOUT_SECONDS, STATEMENT_TIMEOUT_SECONDS
from djqueue.engines.postgres.controller import PostgresController
from djqueue.engines.postgres.cron import PostgresCron
from djqueue.engines.postgres.direct import is_own_transaction
from djqueue.engines.postgres.execution import Execute, run_on
from djqueue.engines.postgres.fetcher import PostgresFetcher
from djqueue.engines.postgres.flows.acking import flow_statement
from djqueue.engines.postgres.flows.effects import After, note_ends
from djqueue.engines.postgres.flows.settling import settle_after_commit
from djqueue.engines.postgres.flows.store import PostgresFlows
from djqueue.engines.postgres.inspector import PostgresInspector
from djqueue.engines.postgres.listener import PostgresListener
from djqueue.engines.postgres.maintainer import PostgresMaintainer
from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.registrar import PostgresRegistrar
from djqueue.engines.postgres.single import insert_one
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.unique import insert_unique, is_simple, job_columns
from djqueue.engines.postgres.wakes import seconds_until_due, wake_after_commit, wake_for
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import LIVE_ONLY, Ack, InsertedJob, InsertedMany, NewJob, UniqueRule

_SAVEPOINT = "djqueue"
_SAVEPOINT_GONE = (psycopg.errors.InvalidSavepointSpecification, psycopg.errors.NoActiveSqlTransaction)


class PostgresEngine(PostgresController, PostgresInspector, PostgresFlows):
    """Jobs in the database of one Django alias."""

    is_transactional = True

    def __init__(
        self, alias: str, *, listen: bool = True, statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS
    ) -> None:
        super().__init__(alias, listen=listen)
        self.statement_timeout = statement_timeout_seconds

    @property
    def store(self) -> str:
        return f"postgresql:{self.alias}"

    def insert_one(
        self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False, now: datetime | None = None
    ) -> InsertedJob:
        is_plain = job.unique_key is None or is_simple(rule)
        if is_plain:
            connection = connections[self.alias]
            if (inserted := insert_one(connection, job, now, wakes=self.listen, relaxed=relaxed)) is not None:
                return inserted
        [inserted] = self._insert([job], rule, relaxed, now, are_held=is_plain)
        return inserted

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        rule: UniqueRule = LIVE_ONLY,
        relaxed: bool = False,
        now: datetime | None = None,
    ) -> list[InsertedJob]:
        if not jobs:
            return []
        if len(jobs) == 1:
            return [self.insert_one(jobs[0], rule=rule, relaxed=relaxed, now=now)]
        return self._insert(jobs, rule, relaxed, now)

    def _insert(
        self, jobs: Sequence[NewJob], rule: UniqueRule, relaxed: bool, now: datetime | None, *, are_held: bool = False
    ) -> list[InsertedJob]:
        connection = connections[self.alias]
        relaxed = relaxed and is_own_transaction(connection)
        if any(job.unique_key is not None for job in jobs):
            inserted, new_in = insert_unique(connection, jobs, rule, now, relaxed=relaxed, are_held=are_held)
        else:
            with connection.cursor() as cursor:
                cursor.execute(sql("insert"), {**job_columns(jobs), "now": now, "relaxed": relaxed})
                inserted = list(map(InsertedJob._make, rows_of(cursor)))
            new_in = {new.queue for new, job in zip(jobs, inserted, strict=True) if job.state == "available"}
        due_in = min(
            seconds_until_due(new, job, is_rescheduled=rule.reschedule or rule.replace)
            for new, job in zip(jobs, inserted, strict=True)
        )
        if self.listen and (new_in or due_in < math.inf):
            wake_after_commit(connection, new_in, due_in=due_in)
        return inserted

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded], *, now: datetime | None = None) -> InsertedMany:
        if not arguments:
            return InsertedMany((), "", datetime.min)
        connection = connections[self.alias]
        inserted = copy_jobs(connection, job, arguments, now)
        if self.listen:
            wake_for(connection, job, InsertedJob(0, inserted.state, inserted.inserted_at))
        return inserted

    @contextmanager
    def together(self, *, relaxed: bool = False) -> Iterator[None]:
        """Let several inserts commit together: with the caller's transaction, if there is one.

        ``relaxed``: the commit of a transaction of their own does not wait for the disk.
        """
        connection = connections[self.alias]
        relaxed = relaxed and is_own_transaction(connection)
        with transaction.atomic(self.alias):
            if relaxed:
                with connection.cursor() as cursor:
                    cursor.execute(sql("relax"))
            yield

    @contextmanager
    def transaction(self) -> Iterator[str]:
        with transaction.atomic(using=self.alias, durable=True):
            with connections[self.alias].cursor() as cursor:
                cursor.execute(f"SAVEPOINT {_SAVEPOINT}")
            yield self.alias

    def ack_here(self, ack: Ack) -> bool:
        """Raise ``TransactionManagementError`` if the current transaction is not the one that ``transaction`` opened."""
        with connections[self.alias].cursor() as cursor:
            self._require_savepoint(cursor)
            if ack.taken is not None:
                for name, params in taken_statements([ack], None):
                    cursor.execute(sql(name), params)
                return True
            if ack.flow_id is None and not ack.is_awaited:
                cursor.execute(sql("ack"), {**ack_columns([ack]), "result": texts([ack.result]), "now": None})
                if cursor.fetchone() is not None:
                    return True
            # Its effect on other jobs comes after the commit, because this transaction may not lock what an ack needs.
            name, params = flow_statement([ack], None, as_events=True)
            cursor.execute(sql(name), params)
            rows = cursor.fetchall()
        after = After()
        note_ends(rows, after)
        if after:
            settle_after_commit(connections[self.alias], wakes=self.listen, after=after)
        return bool(rows)

    def _require_savepoint(self, cursor: CursorWrapper) -> None:
        """Release the savepoint that was made first in the transaction. A raw COMMIT or ROLLBACK has removed it.

        psycopg and Django begin another transaction then, and only the missing savepoint shows the difference.
        """
        try:
            cursor.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except DatabaseError as error:
            if not isinstance(error.__cause__, _SAVEPOINT_GONE):
                raise
            raise transaction.TransactionManagementError(
                f"The task ended its transaction on the database {self.alias!r} with a raw COMMIT or ROLLBACK. With"
                " transactional=True, djqueue owns the transaction: use transaction.atomic() for savepoints, or raise an exception."
            ) from error

    @property
    def cron(self) -> PostgresCron:
        def transact(work: Callable[[Execute], Any]) -> Any:
            with transaction.atomic(using=self.alias), connections[self.alias].cursor() as cursor:
                return work(run_on(cursor))

        def wake(queues: Collection[str]) -> None:
            if self.listen:
                wake_after_commit(connections[self.alias], queues)

        return PostgresCron(transact, wake=wake)

    def open_cron(self) -> PostgresCron:
        own = self.open_maintainer()

        def transact(work: Callable[[Execute], Any]) -> Any:
            def in_transaction(connection: psycopg.Connection[TupleRow]) -> Any:
                with connection.transaction(), connection.cursor() as cursor:
                    return work(run_on(cursor))

            return own.attempt(in_transaction)

        return PostgresCron(transact, wake=own.wake, close=own.close)

    def open_fetcher(self) -> PostgresFetcher:
        return PostgresFetcher(self.alias, listen=self.listen, statement_timeout_seconds=self.statement_timeout)

    def open_registrar(self) -> PostgresRegistrar:
        return PostgresRegistrar(self.alias, listen=self.listen, statement_timeout_seconds=self.statement_timeout)

    def open_maintainer(self, *, waits: bool = False) -> PostgresMaintainer:
        return PostgresMaintainer(
            self.alias,
            listen=self.listen,
            statement_timeout_seconds=self.statement_timeout,
            lock_timeout_seconds=0 if waits else LOCK_TIMEOUT_SECONDS,
        )

    def open_listener(self) -> PostgresListener:
        """The listener connects at its first mark."""
        return PostgresListener(self.alias, listen=self.listen)
