"""The verbs of workers and maintenance on PostgreSQL: one SQL file each, on a connection of their own."""

from __future__ import annotations

import itertools
import json
import logging
import operator
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from djqueue.engines.control import clean
from djqueue.engines.postgres.at_most_once import taken_statements
from djqueue.engines.postgres.columns import ack_columns, array, texts
from djqueue.engines.postgres.connection import STATEMENT_TIMEOUT_SECONDS, application_name
from djqueue.engines.postgres.fetch_cursor import Place
from djqueue.engines.postgres.listener import PostgresListener
from djqueue.engines.postgres.pruning import Pruning
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.wakes import PUT_BACK, put_back
from djqueue.engines.protocol import SOON_SECONDS, STAGE
from djqueue.exceptions import EngineBusy, EngineDenied, EngineRefused, EngineUnavailable
from djqueue.jobs.health import Concern, Inspection
from djqueue.jobs.records import (
    Ack,
    CancelRequest,
    ClaimedJob,
    Heartbeat,
    Lease,
    Rescued,
    Staged,
    TakenJob,
    WorkerInfo,
)
from djqueue.jobs.states import FINAL_STATES, JobState

logger = logging.getLogger("djqueue.engine")

_OLDEST_SERVER = 15_00_00
_LONGEST_DELAY = timedelta(days=3650).total_seconds()  # Python cannot read a year beyond 9999
_SLOW_STAGE, _JOB_STAGE = 0.005, 0.0001  # seconds: a search that takes longer has walked past dead entries
_RELEASE_MILLISECONDS = 10
_TAKEN_SECONDS = 1.0
_WATCH_SECONDS = 1.0
_id = operator.itemgetter(0)
_claimed = partial(tuple.__new__, ClaimedJob)
"""What ClaimedJob._make does, but in C: there is one per job."""


class PostgresWorkerEngine(Pruning):
    """The verbs of workers and maintenance on one connection of their own."""

    def __init__(
        self,
        alias: str,
        *,
        listen: bool = True,
        statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS,
        lock_timeout_seconds: float = 0,
    ) -> None:
        super().__init__(
            alias,
            listen=listen,
            statement_timeout_seconds=statement_timeout_seconds,
            lock_timeout_seconds=lock_timeout_seconds,
        )
        self._places: dict[str, Place] = {}
        self._listener: PostgresListener | None = None
        self._watched = 0.0
        """When the names under which we are told of jobs that were put back were last marked, by the monotonic clock."""
        self.is_partial = False
        self._unstageable: list[int] = []
        self._taken_keys: dict[str, float] = {}
        """Unique keys that a transaction has taken which is still open, and until when to leave their follow-ups alone."""
        self._staged_until: str | None = None
        self._stage_all_at = 0.0
        """Until then, by the monotonic clock, staging begins where it last ended."""

    def inspect(self) -> Inspection:
        """Look at the server: what it is, and whether it is too old."""
        [(version, number)] = self.attempt(lambda connection: connection.execute(sql("inspect")).fetchall())
        concerns = []
        if number < _OLDEST_SERVER:
            text = f"The server is PostgreSQL {version}; djqueue needs PostgreSQL 15 or newer."
            concerns.append(Concern(id="djqueue.E007", text=text, hint="Upgrade it.", is_fatal=True))
        return Inspection(server=f"PostgreSQL {version}", concerns=concerns)

    def fetch(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[ClaimedJob]:
        """Where the way from the start leads past many dead entries, continue where the last fetch ended: ``fetch_cursor.py``."""
        self._role = _role(worker)  # of a connection that is still to be opened
        params = {"queue": queue, "limit": limit, "worker": worker, "now": now}
        if (place := self._places.get(queue)) is None:
            place = self._places[queue] = Place()
        began = time.monotonic()
        if place.is_skipping and began < place.scan_at:
            self._watch_put_back(began)
            jobs = list(map(_claimed, self._run("fetch_after", {**params, **place.ranges()})))
            place.note_shortcut(jobs, limit)
            if jobs:
                self.is_partial = True
                return jobs
            began = time.monotonic()
        jobs = list(map(_claimed, self._run("fetch", params)))
        self.is_partial = False
        if place.note_scan(jobs, limit, time.monotonic() - began):
            self._look_how_far(queue, place)
        return jobs

    def ready(self, queues: Collection[str], *, is_hint: bool = False) -> set[str]:
        """A hint counts the queues in which fetches skip: the search walks from the start."""
        skipped = self._skipping.intersection(queues) if is_hint else set()
        return skipped.union(
            queue for (queue,) in self._run("ready", {"queues": list(skipped.symmetric_difference(queues))})
        )

    def open_listener(self) -> PostgresListener:
        """Open the listener of this thread, which also tells it of jobs that were put back, and of jobs that are due soon."""
        self._listener = PostgresListener(self._alias, listen=self._listen, translate=self._hear)
        return self._listener

    def _hear(self, name: str) -> str:
        """Note what a wake-up means for the next search; return the name under which the waiting thread knows it."""
        if name == STAGE:
            self._stage_all_at = 0.0
        elif name.endswith(PUT_BACK):
            name = name.removesuffix(PUT_BACK)
            self._begin_at_the_start([name])
        return name

    def _begin_at_the_start(self, queues: Collection[str]) -> None:
        for queue in queues:
            if (place := self._places.get(queue)) is not None:
                place.scan_at = 0.0

    @property
    def _skipping(self) -> set[str]:
        return {queue for queue, place in self._places.items() if place.is_skipping}

    def _watch_put_back(self, now: float) -> None:
        """Ask to be told of jobs that are put back where fetches skip them; repeatedly, for marks that another worker had."""
        if self._listener is not None and now - self._watched > _WATCH_SECONDS:
            self._watched = now
            self._listener.mark([put_back(queue) for queue in self._skipping])

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
        jobs = []
        for *row, unique_key in self._run("take", {"queue": queue, "limit": limit, "worker": worker, "now": now}):
            job = TakenJob._make(row)
            job.attempted_by, job.unique_key = worker, unique_key
            jobs.append(job)
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
                ("ack", {**ack_columns(finals), "result": texts(ack.result for ack in finals), "now": now})
            )
        if others:
            delays = array([min(max(ack.delay, 0.0), _LONGEST_DELAY) for ack in others])
            notes = texts(ack.note for ack in others)
            statements.append(("ack_requeue", {**ack_columns(others), "delay": delays, "note": notes, "now": now}))
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
            try:
                rows = self._run("ack_cancelled", {**ack_columns(rest), "now": now})
            except EngineUnavailable as error:
                error.accepted, error.is_undone = frozenset(accepted), False
                raise
            accepted.update(row[0] for row in rows)
            ended.extend(row for row in rows if row[1] is not None)
        if ended:
            # The outcomes are stored. Whatever happens here, the stager finds these follow-ups too.
            with suppress(EngineUnavailable):
                self.wake(self._release([key for _, key in ended], now))
        return accepted

    def _ack_taken(self, acks: Sequence[Ack], now: datetime | None) -> set[int]:
        taken = [ack for ack in acks if ack.taken is not None]
        # The others first: a failure of theirs would leave it open whether those were stored that must not be put back twice.
        accepted = self.ack([ack for ack in acks if ack.taken is None], now=now)
        try:
            try:
                self._run_all(taken_statements(taken, now))
            except (EngineBusy, EngineRefused):
                # Somebody has just taken the unique key of one of them: they go back without.
                self._run_all(taken_statements(taken, now, with_keys=False))
        except EngineUnavailable as error:
            error.accepted = frozenset(accepted)
            raise
        # They are stored: an error here would make it look as if they were not. The poll finds the jobs.
        with suppress(EngineUnavailable):
            self.wake({ack.taken.queue for ack in taken if ack.taken is not None and ack.state is JobState.AVAILABLE})
        return accepted | {ack.id for ack in taken}

    def cancel_requested(self, ids: Collection[int]) -> list[CancelRequest]:
        """Say which of these jobs, which the asking worker executes, somebody wants cancelled."""
        return list(map(CancelRequest._make, self._run("cancel_requested", {"ids": list(ids)}))) if ids else []

    def stage(self, limit: int = 5000, *, now: datetime | None = None) -> Staged:
        """Make due jobs available and wake whoever sleeps on their queues.

        A job that the database refuses to stage is logged and left out from then on; the others of its batch are staged.
        Where dead entries make the search from the start a long one, search after what the last full one staged.
        """
        began = time.monotonic()
        is_skipping = now is None and began < self._stage_all_at
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
        self._taken_keys = {key: until for key, until in self._taken_keys.items() if until > began}
        keys = [key for (key,) in self._run("follow_ups", {"limit": limit}) if key not in self._taken_keys]
        if keys:
            staged = replace(staged, queues=sorted({*staged.queues, *self._release_in_parts(keys, now)}))
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

    def bury(self, workers: Mapping[UUID, int | None]) -> set[UUID]:
        """Mark workers as dead for ever, but those that have beaten since; return these."""
        return {id for (id,) in self._run("bury", {"workers": list(workers), "beats": list(workers.values())})}

    def disconnect(self, workers: Collection[UUID]) -> int:
        """End the connections on which these workers fetched; none behind a pooler, where they are shared."""
        if not self._listen or not workers:
            return 0
        try:
            [(count,)] = self._run("disconnect", {"names": [application_name(_role(worker)) for worker in workers]})
        except EngineDenied as error:
            # Some hosts do not let a role end its own sessions. The rescue that follows ten seconds later finds what comes late.
            logger.warning("The connections of a dead worker could not be ended: %s", str(error).strip())
            return 0
        return int(count)

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        """Raise the beat of living workers and return the beats of all known workers."""
        rows = self._run("beat", {"workers": list(workers), "draining": list(draining)})
        return list(map(Heartbeat._make, rows))

    def note_begun(self, claims: Mapping[int, int]) -> set[int]:
        """Note that the functions of these claims have been called; return the ids of those that still execute."""
        return {id for (id,) in self._run("note_begun", {"ids": list(claims), "claims": list(claims.values())})}

    def rescue(
        self,
        workers: Collection[UUID],
        *,
        ran: Mapping[int, int] | None = None,
        kept: Mapping[int, int] | None = None,
        as_noted: bool = False,
        reason: str = "The worker was lost.",
        limit: int = 5000,
        now: datetime | None = None,
    ) -> Rescued:
        """Take jobs back from dead workers, and wake living ones for them."""
        [(requeued, discarded, queues, cancelled, left)] = self._run(
            "rescue",
            {
                "workers": list(workers),
                "ran_id": None if ran is None else list(ran),
                "ran_claim": None if ran is None else list(ran.values()),
                "as_noted": as_noted,
                "kept_id": list(kept or ()),
                "kept_claim": list((kept or {}).values()),
                # It may quote what the worker wrote last. No byte of it may keep its jobs from being rescued.
                "reason": clean(reason),
                "limit": limit,
                "now": now,
            },
        )
        self.wake({*queues, *map(put_back, queues)})
        return Rescued(requeued, discarded, queues, cancelled, left)

    def reclaim(self, worker: UUID, kept: Mapping[int, int], *, now: datetime | None = None) -> Rescued:
        """Put back what the store holds for a living worker but the worker does not know of; no attempt is spent."""
        rescued = self.rescue([worker], ran={}, kept=kept, now=now)
        self._begin_at_the_start(rescued.queues)
        return rescued

    def rescue_ownerless(self, *, limit: int = 5000, now: datetime | None = None) -> Rescued:
        """Take jobs back whose claimer has no worker row."""
        claimers = [claimer for (claimer,) in self._run("ownerless", {})]
        if not claimers:
            return Rescued()
        reason = "The worker was lost, and its record with it."
        return self.rescue(claimers, as_noted=True, reason=reason, limit=limit, now=now)

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

    def _release(self, keys: Sequence[str], now: datetime | None) -> set[str]:
        """Let the follow-ups of jobs that have ended begin; return whom to wake for it."""
        try:
            return self._released(keys, now)
        except (EngineRefused, EngineBusy):
            # Another transaction takes or has taken one of the keys. The stager finds out which.
            return {STAGE}

    def _release_in_parts(self, keys: Sequence[str], now: datetime | None) -> set[str]:
        try:
            return self._released(keys, now)
        except EngineRefused:
            if len(keys) == 1:
                return set()  # the job that has just taken the key runs first
        except EngineBusy:
            if len(keys) == 1:
                # Asked for in every look, an open transaction would cost each of them the wait.
                self._taken_keys[keys[0]] = time.monotonic() + _TAKEN_SECONDS
                return set()
        middle = len(keys) // 2
        return self._release_in_parts(keys[:middle], now) | self._release_in_parts(keys[middle:], now)

    def _released(self, keys: Sequence[str], now: datetime | None) -> set[str]:
        rows = self._run("release", {"keys": keys, "milliseconds": _RELEASE_MILLISECONDS, "now": now})
        return {queue if state == "available" else STAGE for _, queue, state in rows}


def _role(worker: UUID) -> str:
    return f"worker {worker}"
