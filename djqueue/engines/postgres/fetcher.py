"""Claim jobs and store outcomes on PostgreSQL: one SQL file a verb, on a connection of its own."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from djqueue.engines.postgres.at_most_once import taken_statements
from djqueue.engines.postgres.columns import ack_columns, array, texts
from djqueue.engines.postgres.connection import STATEMENT_TIMEOUT_SECONDS, role_of
from djqueue.engines.postgres.fetch_cursor import Place
from djqueue.engines.postgres.flows.acking import flow_statement, run_and_release
from djqueue.engines.postgres.flows.effects import After, note_ends
from djqueue.engines.postgres.flows.settling import settle_on
from djqueue.engines.postgres.follow_ups import release
from djqueue.engines.postgres.listener import PostgresListener
from djqueue.engines.postgres.rescue import rescue
from djqueue.engines.postgres.session import Session
from djqueue.engines.postgres.wakes import PUT_BACK, put_back
from djqueue.engines.protocol import SOON_SECONDS, STAGE
from djqueue.exceptions import EngineBusy, EngineRefused, EngineUnavailable
from djqueue.jobs.control import CancelRequest
from djqueue.jobs.records import Ack, Acked, ClaimedJob, Rescued, TakenJob
from djqueue.jobs.states import FINAL_STATES, JobState

_LONGEST_DELAY = timedelta(days=3650).total_seconds()  # Python cannot represent a year after 9999
_WATCH_SECONDS = 1.0
_id = operator.itemgetter(0)
_claimed = partial(tuple.__new__, ClaimedJob)
"""What ClaimedJob._make does, but in C: there is one per job."""


class PostgresFetcher(Session):
    def __init__(
        self, alias: str, *, listen: bool = True, statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS
    ) -> None:
        super().__init__(alias, listen=listen, statement_timeout_seconds=statement_timeout_seconds)
        self._places: dict[str, Place] = {}
        self._listener: PostgresListener | None = None
        self._watched = 0.0
        """Monotonic time at which this fetcher last marked the names under which put-back jobs are announced to it."""
        self.is_partial = False

    def fetch(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[ClaimedJob]:
        """Where a scan from the start is long because of dead entries, continue after the last fetch: ``fetch_cursor.py``."""
        self._role = role_of(worker)  # the role of the next connection that is opened
        params = {"queue": queue, "limit": limit, "worker": worker, "now": now}
        if (place := self._places.get(queue)) is None:
            place = self._places[queue] = Place()
        began = time.monotonic()
        if place.is_skipping and began < place.scan_at:
            self._watch_put_back(began)
            jobs = list(map(_claimed, self.run("fetch_after", {**params, **place.ranges()})))
            place.note_shortcut(jobs, limit)
            if jobs:
                self.is_partial = True
                return jobs
            began = time.monotonic()
        jobs = list(map(_claimed, self.run("fetch", params)))
        self.is_partial = False
        if place.note_scan(jobs, limit, time.monotonic() - began):
            self._look_how_far(queue, place)
        return jobs

    def ready(self, queues: Collection[str], *, is_hint: bool = False) -> set[str]:
        """A hint includes all queues in which fetches skip entries: there a search would scan from the start."""
        skipped = self._skipping.intersection(queues) if is_hint else set()
        return skipped.union(
            queue for (queue,) in self.run("ready", {"queues": list(skipped.symmetric_difference(queues))})
        )

    def open_listener(self) -> PostgresListener:
        """The listener also notifies the fetcher of jobs that were put back."""
        self._listener = PostgresListener(self._alias, listen=self._listen, translate=self._hear)
        return self._listener

    def _hear(self, name: str) -> str:
        """Translate the name in a wake-up to the queue that the waiting thread knows."""
        if name.endswith(PUT_BACK):
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
        """Mark the names that announce put-back jobs; repeatedly, because another worker may have held a mark."""
        if self._listener is not None and now - self._watched > _WATCH_SECONDS:
            self._watched = now
            self._listener.mark([put_back(queue) for queue in self._skipping])

    def _look_how_far(self, queue: str, place: Place) -> None:
        began = time.monotonic()
        # The jobs are already claimed, so they must reach the caller even if this measurement fails.
        with suppress(EngineUnavailable, EngineRefused):
            [([plan],)] = self.run("walk", {"queue": queue})
            buffers = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
            place.note_walk(buffers, time.monotonic() - began)

    def take(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[TakenJob]:
        # Not retried after a lost response: jobs that the first try took are lost, as those of a worker that dies are.
        jobs = []
        for *row, unique_key in self.run("take", {"queue": queue, "limit": limit, "worker": worker, "now": now}):
            job = TakenJob._make(row)
            job.attempted_by, job.unique_key = worker, unique_key
            jobs.append(job)
        return jobs

    def reclaim(self, worker: UUID, kept: Mapping[int, int], *, now: datetime | None = None) -> Rescued:
        rescued = rescue(self, [worker], ran={}, kept=kept, now=now)
        self._begin_at_the_start(rescued.queues)
        return rescued

    def cancel_requested(self, ids: Collection[int]) -> list[CancelRequest]:
        return list(map(CancelRequest._make, self.run("cancel_requested", {"ids": list(ids)}))) if ids else []

    def ack(self, acks: Sequence[Ack], *, now: datetime | None = None) -> Acked:
        if not acks:
            return Acked(frozenset())
        if any(ack.taken for ack in acks):
            return self._ack_taken(acks, now)
        # Sorted by id, like every write of many rows, so that two writes cannot deadlock.
        ordered = sorted(acks, key=_id)
        finals = [ack for ack in ordered if ack.state in FINAL_STATES]
        others = [ack for ack in ordered if ack.state not in FINAL_STATES]
        flows = [ack for ack in finals if ack.flow_id is not None or ack.is_awaited]
        if flows:
            finals = [ack for ack in finals if ack.flow_id is None and not ack.is_awaited]
        statements: list[tuple[str, dict[str, Any]]] = []
        if finals:
            statements.append(
                ("ack", {**ack_columns(finals), "result": texts(ack.result for ack in finals), "now": now})
            )
        if others:
            delays = array([min(max(ack.delay, 0.0), _LONGEST_DELAY) for ack in others])
            notes = texts(ack.note for ack in others)
            statements.append(("ack_requeue", {**ack_columns(others), "delay": delays, "note": notes, "now": now}))
        after = After()
        if flows:
            is_awaited = any(ack.is_awaited for ack in flows)
            statements.append(flow_statement(flows, now, as_events=not is_awaited))
            if is_awaited:
                answers, after = run_and_release(self, statements, now)
            else:
                answers = self.run_all(statements)
                note_ends(answers[-1], after)
        else:
            answers = self.run_all(statements)
        if others:
            back = answers[1 if finals else 0]
            woken = {queue for _, queue, state in back if state == "available"}
            unspent = {ack.id for ack in others if not ack.is_spent}
            # These jobs keep their position in the queue, which another worker's fetch cursor may have passed.
            woken |= {put_back(queue) for id, queue, state in back if state == "available" and id in unspent}
            if any(0 < ack.delay <= SOON_SECONDS for ack in others):
                woken.add(STAGE)
            # The outcomes are stored: with an error the caller would send them again, as stale ones. Polling finds the jobs.
            with suppress(EngineUnavailable):
                self.wake(woken)
        accepted = {row[0] for row in itertools.chain.from_iterable(answers)}
        ended = [row for answer in answers[:1] if finals for row in answer if row[1] is not None]
        ended += [row for answer in answers[-1:] if flows for row in answer if row[1] is not None]
        # Almost always none. Their claim is stale, or they have a cancel request and may not run again, or others began to wait
        # for them while they executed.
        if len(accepted) < len(acks) and (rest := [ack for ack in acks if ack.id not in accepted]):
            ended += [row for row in self._ack_rest(rest, accepted, after, now) if row[1] is not None]
        if ended:
            # The outcomes are stored. If this fails, the stager finds these follow-ups.
            with suppress(EngineUnavailable):
                self.wake(release(self, [row[1] for row in ended], now))
        if after:
            settle_on(self, after, now)
        return Acked(accepted)

    def _ack_rest(self, acks: Sequence[Ack], accepted: set[int], after: After, now: datetime | None) -> list[Any]:
        """Store outcomes in the cases that are rare; return the rows, and add to ``accepted`` and ``after``."""
        finals = [ack for ack in acks if ack.state in FINAL_STATES and ack.flow_id is None and not ack.is_awaited]
        others = [ack for ack in acks if ack.state not in FINAL_STATES]
        statements = [flow_statement(finals, now, as_events=True)] if finals else []
        if others:
            statements.append(("ack_cancelled", {**ack_columns(others), "now": now}))
        found: list[Any] = []
        try:
            for name, params in statements:
                rows = self.run(name, params)
                note_ends(rows, after)
                accepted.update(row[0] for row in rows)
                found += rows
        except EngineUnavailable as error:
            error.accepted, error.is_undone = frozenset(accepted), False
            raise
        return found

    def _ack_taken(self, acks: Sequence[Ack], now: datetime | None) -> Acked:
        taken = [ack for ack in acks if ack.taken is not None]
        # The other outcomes come first: taken jobs must not be put back twice, so nothing may fail after they are stored.
        accepted = self.ack([ack for ack in acks if ack.taken is None], now=now).accepted
        try:
            try:
                self.run_all(taken_statements(taken, now))
            except (EngineBusy, EngineRefused):
                # Another job has just taken the unique key of one of them: put them back without their keys.
                self.run_all(taken_statements(taken, now, with_keys=False))
        except EngineUnavailable as error:
            error.accepted = frozenset(accepted)
            raise
        # The outcomes are stored, and an error would suggest that they are not. Polling finds the jobs.
        with suppress(EngineUnavailable):
            self.wake({ack.taken.queue for ack in taken if ack.taken is not None and ack.state is JobState.AVAILABLE})
        return Acked(accepted | {ack.id for ack in taken})
