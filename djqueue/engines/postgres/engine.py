"""The verbs on PostgreSQL: one SQL file each, with the parameters made here and the rows turned into records."""

from __future__ import annotations

import itertools
import json
import logging
import math
import operator
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from django.db import connections, transaction
from psycopg.rows import TupleRow

from djqueue.encoding import Encoded
from djqueue.engines.postgres.bulk import copy_jobs
from djqueue.engines.postgres.connection import STATEMENT_TIMEOUT_SECONDS, application_name, connect
from djqueue.engines.postgres.cron import Execute, PostgresCron, run_on
from djqueue.engines.postgres.health import health
from djqueue.engines.postgres.listener import PostgresListener
from djqueue.engines.postgres.place import Place
from djqueue.engines.postgres.single import insert_one
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.steering import Steering, clean
from djqueue.engines.postgres.taken import taken_statements
from djqueue.engines.postgres.unique import insert_unique, job_columns
from djqueue.engines.postgres.wakes import seconds_until_due, wake_after_commit, wake_for
from djqueue.engines.protocol import SOON_SECONDS, STAGE, put_back
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.records import (
    LIVE_ONLY,
    NOBODY,
    Ack,
    CancelRequest,
    ClaimedJob,
    Health,
    Heartbeat,
    InsertedJob,
    InsertedMany,
    Job,
    Lease,
    NewJob,
    Pruned,
    PruneRule,
    QueueCounts,
    Rescued,
    Staged,
    TakenJob,
    UniqueRule,
    WorkerInfo,
)
from djqueue.states import FINAL_STATES, JobState

logger = logging.getLogger("djqueue.engine")

logger = logging.getLogger("djqueue.engine")

_UNPREPARED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)
_TRANSIENT = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
# What a value can be guilty of: bytes or numbers that PostgreSQL has no room for, text that is no text, JSON beyond 256 MB, a rule
# of the table.
_REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded, UnicodeError)
# A server that was demoted answers, and refuses to write: the connection must go, for the next one may find the new primary.
_UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)
_TRIES = 5
_LONGEST_DELAY = timedelta(days=3650).total_seconds()  # Python cannot read a year beyond 9999
_SLOW_STAGE, _JOB_STAGE = 0.005, 0.0001  # seconds: a search that takes longer has walked past dead entries
_id = operator.itemgetter(0)
T = TypeVar("T")


class PostgresEngine(Steering):
    """Jobs in the database of one Django alias. The verbs that steer jobs and queues are in ``steering.py``."""

    def __init__(
        self, alias: str, *, listen: bool = True, statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS
    ) -> None:
        self.alias = alias
        self.listen = listen
        self.statement_timeout = statement_timeout_seconds

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        rule: UniqueRule = LIVE_ONLY,
        relaxed: bool = False,
        now: datetime | None = None,
    ) -> list[InsertedJob]:
        """Store the jobs in the caller's transaction, if there is one, and wake sleepers after its commit."""
        if not jobs:
            return []
        connection = connections[self.alias]
        if len(jobs) == 1 and jobs[0].unique_key is None:
            return [insert_one(connection, jobs[0], now, wakes=self.listen, relaxed=relaxed)]
        if any(job.unique_key is not None for job in jobs):
            inserted, new_in = insert_unique(connection, jobs, rule, now)
        else:
            with connection.cursor() as cursor:
                cursor.execute(sql("insert"), {**job_columns(jobs), "now": now})
                inserted = list(map(InsertedJob._make, cursor.fetchall()))
            new_in = {new.queue for new, job in zip(jobs, inserted, strict=True) if job.state == "available"}
        due_in = min(
            seconds_until_due(new, job, is_rescheduled=rule.reschedule) for new, job in zip(jobs, inserted, strict=True)
        )
        if self.listen and (new_in or due_in < math.inf):
            wake_after_commit(connection, new_in, due_in=due_in)
        return inserted

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded], *, now: datetime | None = None) -> InsertedMany:
        """Store jobs that differ in their arguments only, in the caller's transaction, if there is one."""
        if not arguments:
            return InsertedMany((), "", datetime.min)
        connection = connections[self.alias]
        inserted = copy_jobs(connection, job, arguments, now)
        if self.listen:
            wake_for(connection, job, InsertedJob(0, inserted.state, inserted.inserted_at))
        return inserted

    def get(self, job_id: int) -> Job | None:
        """Return the job, live or finished; None if there is none of this id."""
        if not 0 < job_id < 2**63:
            return None
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql("get"), {"id": job_id})
            row = cursor.fetchone()
        return None if row is None else _job(row)

    def transaction(self) -> AbstractContextManager[object]:
        """Open a transaction in which application writes and ``ack_here`` commit together."""
        return transaction.atomic(using=self.alias, durable=True)

    def ack_here(self, ack: Ack) -> bool:
        """Store the outcome of a finished job in the caller's transaction; return whether the claim still holds."""
        with connections[self.alias].cursor() as cursor:
            if ack.taken is not None:
                for name, params in taken_statements([ack], None):
                    cursor.execute(sql(name), params)
                return True
            cursor.execute(sql("ack"), {**_ack_columns([ack]), "result": _texts([ack.result]), "now": None})
            return cursor.fetchone() is not None

    def counts(self) -> list[QueueCounts]:
        """Count live jobs by queue and state."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql("counts"))
            rows = cursor.fetchall()
        queues: dict[str, dict[str, int]] = {}
        oldest: dict[str, float] = {}
        for queue, state, count, oldest_seconds in rows:
            queues.setdefault(queue, {})[state] = count
            if oldest_seconds is not None:
                oldest[queue] = oldest_seconds
        return [QueueCounts(queue, states, oldest.get(queue)) for queue, states in queues.items()]

    @property
    def cron(self) -> PostgresCron:
        """The crontab, as the application sees it: its verbs join the caller's transaction, if there is one."""

        def transact(work: Callable[[Execute], Any]) -> Any:
            with transaction.atomic(using=self.alias), connections[self.alias].cursor() as cursor:
                return work(run_on(cursor))

        def wake(queues: Collection[str]) -> None:
            if self.listen:
                wake_after_commit(connections[self.alias], queues)

        return PostgresCron(transact, wake=wake)

    def open_cron(self) -> PostgresCron:
        """Open the crontab for a scheduler: on a connection of its own."""
        own = self.open_worker()

        def transact(work: Callable[[Execute], Any]) -> Any:
            def in_transaction(connection: psycopg.Connection[TupleRow]) -> Any:
                with connection.transaction(), connection.cursor() as cursor:
                    return work(run_on(cursor))

            return own.attempt(in_transaction)

        return PostgresCron(transact, wake=own.wake, close=own.close)

    def health(self) -> Health:
        """Look at everything that tells whether jobs flow."""
        return health(self.alias)

    def open_worker(self) -> PostgresWorkerEngine:
        """Open what one thread of a worker or supervisor needs; it connects at its first statement."""
        return PostgresWorkerEngine(self.alias, listen=self.listen, statement_timeout_seconds=self.statement_timeout)

    def open_listener(self) -> PostgresListener:
        """Open a listener; it connects at its first mark."""
        return PostgresListener(self.alias, listen=self.listen)


class PostgresWorkerEngine:
    """The verbs of workers and maintenance on one connection of their own.

    A lost connection raises ``EngineUnavailable``; the next statement connects again.
    """

    def __init__(
        self, alias: str, *, listen: bool = True, statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS
    ) -> None:
        self._alias = alias
        self._listen = listen
        self._statement_timeout = statement_timeout_seconds
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._prepares = listen
        """LISTEN needs a direct connection, and where there is one, preparing spares a small statement a quarter of its work."""
        self._role = "worker"
        self._places: dict[str, Place] = {}
        self._unstageable: list[int] = []
        self._staged_until: str | None = None
        self._stage_all_at = 0.0
        """Until then, by the monotonic clock, staging begins where it last ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def fetch(
        self, queue: str, limit: int, worker: UUID, *, from_start: bool = False, now: datetime | None = None
    ) -> list[ClaimedJob]:
        """Claim up to ``limit`` available jobs in run order, counting the attempt and raising the claim.

        Where dead entries make the way from the start a long one, begin where the last fetch ended; see ``place.py``.
        """
        self._role = _role(worker)  # of a connection that is still to be opened
        params = {"queue": queue, "limit": limit, "worker": worker, "now": now}
        if (place := self._places.get(queue)) is None:
            place = self._places[queue] = Place()
        began = time.monotonic()
        if place.is_skipping and not from_start and began < place.scan_at:
            jobs = list(map(ClaimedJob._make, self._run("fetch_after", {**params, **place.ranges()})))
            place.note_shortcut(jobs, limit)
            if jobs:
                return jobs
            began = time.monotonic()
        jobs = list(map(ClaimedJob._make, self._run("fetch", params)))
        if place.note_scan(jobs, limit, time.monotonic() - began):
            self._look_how_far(queue, place)
        return jobs

    @property
    def skipping(self) -> Collection[str]:
        """The queues in which fetches take a shortcut."""
        return [queue for queue, place in self._places.items() if place.is_skipping]

    def _look_how_far(self, queue: str, place: Place) -> None:
        began = time.monotonic()
        # The jobs are claimed and must reach the caller, whatever happens here.
        with suppress(EngineUnavailable, EngineRefused):
            [([plan],)] = self._run("walk", {"queue": queue})
            buffers = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
            place.note_walk(buffers, time.monotonic() - began)

    def take(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[TakenJob]:
        """Fetch jobs that run at most once: they are in no table until ``ack`` writes their history."""
        # Not again after a lost answer: what the first try took is gone, as what runs in a worker that dies.
        jobs = list(
            map(TakenJob._make, self._run("take", {"queue": queue, "limit": limit, "worker": worker, "now": now}))
        )
        for job in jobs:
            job.attempted_by = worker
        return jobs

    def ack(self, acks: Sequence[Ack], *, now: datetime | None = None) -> set[int]:
        """Store outcomes; return the ids that were accepted. A stale claim changes nothing."""
        if not acks:
            return set()
        if any(ack.taken for ack in acks):
            return self._ack_taken(acks, now)
        # Sorted by id, like every write of many rows: two of them can then not wait for each other.
        ordered = sorted(acks, key=_id)
        finals = [ack for ack in ordered if ack.state in FINAL_STATES]
        others = [ack for ack in ordered if ack.state not in FINAL_STATES]
        statements: list[tuple[str, dict[str, Any]]] = []
        if finals:
            statements.append(
                ("ack", {**_ack_columns(finals), "result": _texts(ack.result for ack in finals), "now": now})
            )
        if others:
            delays = _array([min(max(ack.delay, 0.0), _LONGEST_DELAY) for ack in others])
            notes = _texts(ack.note for ack in others)
            statements.append(("ack_requeue", {**_ack_columns(others), "delay": delays, "note": notes, "now": now}))
        answers = self._run_all(statements)
        if others:
            woken = {queue for _, queue, state in answers[-1] if state == "available"}
            unspent = {ack.id for ack in others if not ack.is_spent}
            # These keep their place in the queue, and somebody may be past it.
            woken |= {put_back(queue) for id, queue, state in answers[-1] if state == "available" and id in unspent}
            if any(0 < ack.delay <= SOON_SECONDS for ack in others):
                woken.add(STAGE)
            # The outcomes are stored: an error here would make them look lost, and then stale. The poll finds the jobs.
            with suppress(EngineUnavailable):
                self.wake(woken)
        accepted = {row[0] for row in itertools.chain.from_iterable(answers)}
        ended = [row for row in answers[0] if row[1] is not None] if finals else []
        # Almost always none: their claim is stale, or somebody wants them cancelled, and they may not run again.
        if others and (rest := [ack for ack in others if ack.id not in accepted]):
            rows = self._run("ack_cancelled", {**_ack_columns(rest), "now": now})
            accepted.update(row[0] for row in rows)
            ended.extend(row for row in rows if row[1] is not None)
        if ended:
            # The outcomes are stored. Whatever happens here, the stager finds these follow-ups too.
            with suppress(EngineUnavailable):
                self.wake(self._release([key for _, key in ended], now))
        return accepted

    def _ack_taken(self, acks: Sequence[Ack], now: datetime | None) -> set[int]:
        taken = [ack for ack in acks if ack.taken is not None]
        self._run_all(taken_statements(taken, now))
        self.wake({ack.taken.queue for ack in taken if ack.taken is not None and ack.state is JobState.AVAILABLE})
        return {ack.id for ack in taken} | self.ack([ack for ack in acks if ack.taken is None], now=now)

    def cancel_requested(self, ids: Collection[int]) -> list[CancelRequest]:
        """Say which of these jobs, which the asking worker executes, somebody wants cancelled."""
        return list(map(CancelRequest._make, self._run("cancel_requested", {"ids": list(ids)}))) if ids else []

    def stage(self, limit: int = 5000, *, from_start: bool = False, now: datetime | None = None) -> Staged:
        """Make due jobs available and wake whoever sleeps on their queues.

        A job that the database refuses to stage is logged and left out from then on; the others of its batch are staged.
        Where dead entries make the search from the start a long one, search after what the last full one staged.
        """
        began = time.monotonic()
        is_skipping = not from_start and now is None and began < self._stage_all_at
        since = self._staged_until if is_skipping else None
        params = {"limit": limit, "ids": None, "skip": self._unstageable, "since": since, "now": now}
        try:
            [(*values, at)] = self._run("stage", params)
            staged = Staged(*values)
        except EngineRefused:
            due = [id for (id,) in self._run("due", {"limit": limit, "skip": self._unstageable, "now": now})]
            parts = self._stage_in_parts(due, now)
            staged = Staged(sum(part.count for part in parts), sorted({q for part in parts for q in part.queues}), 0.0)
        else:
            if not is_skipping:
                seconds = time.monotonic() - began
                is_slow = staged.count < limit and seconds > _SLOW_STAGE + _JOB_STAGE * staged.count
                self._stage_all_at = began + max(1.0, 20 * seconds) if is_slow else 0.0
            if staged.count < limit:
                self._staged_until = at
        if keys := [key for (key,) in self._run("follow_ups", {"limit": limit})]:
            staged = replace(staged, queues=sorted({*staged.queues, *self._release(keys, now)}))
        self.wake(staged.queues)
        return staged

    def _stage_in_parts(self, ids: list[int], now: datetime | None) -> list[Staged]:
        try:
            rows = self._run("stage", {"limit": len(ids), "ids": ids, "skip": [], "since": None, "now": now})
        except EngineRefused as error:
            if len(ids) > 1:
                middle = len(ids) // 2
                return self._stage_in_parts(ids[:middle], now) + self._stage_in_parts(ids[middle:], now)
            logger.error("Job %d cannot be staged and is left out until the leader changes: %s", ids[0], error)
            self._unstageable.append(ids[0])
            return []
        return [Staged(*values) for *values, _ in rows]

    def prune_keys(self, limit: int = 10_000, *, now: datetime | None = None) -> int:
        """Remove unique keys that nobody holds any more; return how many went."""
        [(expired, orphaned)] = self._run("prune_keys", {"limit": limit, "now": now})
        return int(expired + orphaned)

    def wake(self, queues: Collection[str]) -> None:
        """Wake the workers that sleep on these queues."""
        if queues and self._listen:
            self._run("wake", {"queues": sorted(queues)})

    def register(self, workers: Sequence[WorkerInfo]) -> None:
        """Announce workers; committed before their first fetch."""
        for worker in workers:
            self._run(
                "register",
                {
                    "id": worker.id,
                    "name": worker.name,
                    "hostname": worker.hostname,
                    "pid": worker.pid,
                    "queues": json.dumps(dict(worker.queues)),
                    "concurrency": worker.concurrency,
                },
            )

    def deregister(self, workers: Collection[UUID]) -> None:
        """Forget workers that left nothing behind."""
        self._run("deregister", {"workers": list(workers)})

    def bury(self, workers: Collection[UUID]) -> None:
        """Mark workers as dead for ever."""
        self._run("bury", {"workers": list(workers)})

    def disconnect(self, workers: Collection[UUID]) -> int:
        """End the connections on which these workers fetched; none behind a pooler, where they are shared."""
        if not self._listen or not workers:
            return 0
        try:
            [(count,)] = self._run("disconnect", {"names": [application_name(_role(worker)) for worker in workers]})
        except psycopg.ProgrammingError as error:
            # Some hosts do not let a role end its own sessions. The rescue that follows ten seconds later finds what comes late.
            logger.warning("The connections of a dead worker could not be ended: %s", str(error).strip())
            return 0
        return int(count)

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        """Raise the beat of living workers and return the beats of all known workers."""
        rows = self._run("beat", {"workers": list(workers), "draining": list(draining)})
        return list(map(Heartbeat._make, rows))

    def rescue(
        self,
        workers: Collection[UUID],
        *,
        ran: Mapping[int, int] | None = None,
        kept: Mapping[int, int] | None = None,
        reason: str = "The worker was lost.",
        limit: int = 5000,
        now: datetime | None = None,
    ) -> Rescued:
        """Take jobs back from dead workers, and wake living ones for them."""
        [(requeued, discarded, queues, cancelled)] = self._run(
            "rescue",
            {
                "workers": list(workers),
                "ran_id": None if ran is None else list(ran),
                "ran_claim": None if ran is None else list(ran.values()),
                "kept_id": list(kept or ()),
                "kept_claim": list((kept or {}).values()),
                # It may quote what the worker wrote last. No byte of it may keep its jobs from being rescued.
                "reason": clean(reason),
                "limit": limit,
                "now": now,
            },
        )
        self.wake({*queues, *map(put_back, queues)})
        return Rescued(requeued, discarded, queues, cancelled)

    def rescue_ownerless(self, *, limit: int = 5000, now: datetime | None = None) -> Rescued:
        """Take jobs back whose claimer has no worker row."""
        claimers = [claimer for (claimer,) in self._run("ownerless", {})]
        if not claimers:
            return Rescued()
        return self.rescue(claimers, reason="The worker was lost, and its record with it.", limit=limit, now=now)

    def prune(
        self,
        rules: Sequence[PruneRule],
        *,
        place: Any = None,
        limit: int = 1000,
        queue: str | None = None,
        is_dry_run: bool = False,
        now: datetime | None = None,
    ) -> Pruned:
        """Look at the next ``limit`` finished jobs, oldest first, and delete those that their rule lets go."""
        cutoffs, at, id = place or (self._cutoffs(rules, now), "-infinity", 0)
        if not cutoffs:
            return Pruned(0, None)
        params = {
            "rule_state": [rule.state.value for rule, _ in cutoffs],
            "rule_queue": [rule.queue for rule, _ in cutoffs],
            "rule_task": [rule.task for rule, _ in cutoffs],
            "rule_cutoff": [cutoff for _, cutoff in cutoffs],
            "queue": queue,
            "after_at": at,
            "after_id": id,
            "limit": limit,
            "is_dry_run": is_dry_run,
        }
        [(seen, count, last_at, last_id)] = self._run("prune", params)
        return Pruned(count, (cutoffs, last_at, last_id) if seen == limit else None)

    def _cutoffs(self, rules: Sequence[PruneRule], now: datetime | None) -> list[tuple[PruneRule, str]]:
        """Turn ages and counts into times: what finished before goes."""
        cutoffs = []
        for rule in rules:
            others = [o for o in rules if o.state == rule.state and (o.queue, o.task) != (rule.queue, rule.task)]
            oldest = None
            if rule.max_count == 0:
                oldest = "infinity"
            elif rule.max_count is not None:
                params = {
                    "state": rule.state.value,
                    "queue": rule.queue,
                    "task": rule.task,
                    "other_queues": [] if rule.queue or rule.task else [o.queue for o in others if o.queue],
                    "other_tasks": [] if rule.task else [o.task for o in others if o.task],
                    "count": rule.max_count,
                }
                oldest = next((at for (at,) in self._run("prune_cutoff", params)), None)
            age = None if rule.max_age is None else rule.max_age.total_seconds()
            [(cutoff,)] = self._run("prune_time", {"age": age, "oldest": oldest, "now": now})
            cutoffs.append((rule, cutoff))
        return cutoffs

    def elect(
        self, holder: UUID, ttl_seconds: float, *, loops: Mapping[str, float] | None = None, now: datetime | None = None
    ) -> Lease:
        """Take or renew the lead."""
        params = {"holder": holder, "ttl": ttl_seconds, "loops": json.dumps(dict(loops or {})), "now": now}
        rows = self._run("elect", params)
        return Lease(True, rows[0][0]) if rows else Lease(False, 0)

    def resign(self, holder: UUID) -> None:
        """Give the lead up, so that another takes it at once."""
        self._run("resign", {"holder": holder})

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _release(self, keys: Sequence[str], now: datetime | None) -> set[str]:
        """Let the follow-ups of jobs that have ended begin; return whom to wake for it."""
        try:
            rows = self._run("release", {"keys": keys, "now": now})
        except EngineRefused:
            # Somebody has just taken one of the keys. His is the next job then, and only that follow-up goes on waiting.
            if len(keys) == 1:
                return set()
            return set().union(*(self._release([key], now) for key in keys))
        return {queue if state == "available" else STAGE for _, queue, state in rows}

    def _run(self, name: str, params: dict[str, Any]) -> list[Any]:
        """Run one statement in a transaction of its own."""
        return self._run_all([(name, params)])[0]

    def _run_all(self, statements: Sequence[tuple[str, dict[str, Any]]]) -> list[list[Any]]:
        """Run all of them or none."""

        def work(connection: psycopg.Connection[TupleRow]) -> list[list[Any]]:
            # A single statement is a transaction of its own and needs no BEGIN and COMMIT around it.
            with connection.transaction() if len(statements) > 1 else nullcontext():
                cursors = [connection.execute(sql(name), params) for name, params in statements]
            return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

        return self.attempt(work)

    def attempt(self, work: Callable[[psycopg.Connection[TupleRow]], T]) -> T:
        """Do something on the connection; again if it lost a race that the database resolved."""
        lost: psycopg.Error
        for _ in range(_TRIES):
            try:
                if self._connection is None:
                    self._connection = connect(
                        self._alias, self._role, self._statement_timeout, prepares=self._prepares
                    )
                return work(self._connection)
            except _UNPREPARED as error:
                # A pooler gave us a server connection that has not seen what we prepared, or has seen somebody else's.
                # The server refused to run the statement, so nothing was done.
                logger.warning("Statements cannot be prepared here (%s); going on without.", str(error).strip())
                lost = error
                self._prepares = False
                self.close()
            except _TRANSIENT as error:
                lost = error
                time.sleep(random.uniform(0, 0.05))  # noqa: S311  jitter, no secret
            except _REFUSED as error:
                raise EngineRefused(f"The database {self._alias!r} does not take this: {str(error).strip()}") from error
            except psycopg.Error as error:
                # Whatever the server said last (that the transaction was idle for too long, that it shuts down): when it
                # has hung up, the next statement needs another connection.
                if isinstance(error, _UNAVAILABLE) or self._connection is None or self._connection.closed:
                    self.close()
                    raise EngineUnavailable(
                        f"The database {self._alias!r} did not answer: {str(error).strip()}"
                    ) from error
                raise
        raise EngineUnavailable(f"The database {self._alias!r} is busy: {str(lost).strip()}") from lost


def _role(worker: UUID) -> str:
    return f"worker {worker}"


def _ack_columns(acks: Sequence[Ack]) -> dict[str, Any]:
    now = time.monotonic()
    return {
        "id": _array([ack.id for ack in acks]),
        "claim": _array([ack.claim for ack in acks]),
        "state": _array([ack.state for ack in acks]),
        "started_ago": _array(["NULL" if ack.started is None else now - ack.started for ack in acks]),
        "finished_ago": _array([max(0.0, now - ack.finished) if ack.finished else 0.0 for ack in acks]),
        "error": _texts(ack.error for ack in acks),
        "is_spent": _array([ack.is_spent for ack in acks]),
    }


def _array(values: Sequence[object]) -> str:
    """Write a PostgreSQL array of plain words and numbers: joined in C, where psycopg would adapt each element."""
    return "{" + ",".join(map(str, values)) + "}"


def _texts(values: Iterable[str | None]) -> list[str | None]:
    """Return the texts of a column; none at all if there is none, for unnest() fills shorter arrays up with nulls."""
    texts = list(values)
    return texts if any(text is not None for text in texts) else []


def _job(row: Sequence[Any]) -> Job:
    values = dict(zip(_JOB_COLUMNS, row, strict=True))
    for name in ("args", "kwargs", "errors", "meta", "result", "cancel_request"):
        if values[name] is not None:
            values[name] = json.loads(values[name])
    if values["attempted_by"] == NOBODY:
        values["attempted_by"] = values["attempted_at"] = None
    return Job(**{**values, "state": JobState(values["state"])})


_JOB_COLUMNS = [
    "id",
    "state",
    "queue",
    "task",
    "args",
    "kwargs",
    "priority",
    "attempt",
    "max_attempts",
    "claim",
    "attempted_by",
    "attempted_at",
    "inserted_at",
    "scheduled_at",
    "ready_at",
    "expires_at",
    "started_at",
    "finished_at",
    "errors",
    "result",
    "meta",
    "unique_key",
    "cancel_request",
]
