"""The verbs that control jobs and queues, on the application's connection.

A job may change its table between two statements of a verb: an ack moves it to the history, a retry moves it back. So
a write tries one table, then the other, and a job of which the last look says that it can be controlled after all is tried
again. Each statement locks in the order of the ids and decides by the state that it has locked.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

import psycopg
from django.db import OperationalError, connections

from djqueue.engines.control import (
    BY_LENGTH,
    CANCELLABLE,
    FINAL,
    MISSING,
    REASON_LENGTH,
    RETRYABLE,
    TOO_FAST,
    WAITING,
    clean,
    who_and_why,
    why_not,
)
from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.rows import job_of
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.wakes import put_back, wake_after_commit
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import Controlled, ControlOutcome, Found, JobFilter, Newest, QueueRules, WorkerStatus
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState

_TRANSIENT = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
_TRIES = 5
_END = 2**63 - 1


class Control:
    alias: str
    listen: bool

    def cancel(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        """End jobs that wait as cancelled, and ask those that execute to end."""
        who, why = who_and_why("Cancelled", by, reason)

        def act(rest: list[int]) -> dict[int, ControlOutcome]:
            rows = self._execute("cancel", {"ids": rest, "only": _states(only), "by": who, "reason": why, "now": now})
            if self.listen and (running := [f"cancel:{id}" for id, state in rows if state == "executing"]):
                # A transaction of the caller's sends it with its commit, as it does the request itself.
                self._execute("notify", {"queues": running})
            return {
                id: ControlOutcome.CANCELLED if state == "cancelled" else ControlOutcome.REQUESTED for id, state in rows
            }

        return self._control(ids, only, CANCELLABLE, act)

    def retry(
        self, ids: Collection[int], *, only: Collection[JobState] = (), now: datetime | None = None
    ) -> list[Controlled]:
        """Make jobs available that are finished or wait for a time, and wake sleepers after the caller's commit."""

        def act(rest: list[int]) -> dict[int, ControlOutcome]:
            params = {"ids": rest, "only": _states(only), "now": now}
            rows = dict(self._execute("retry_waiting", params))
            if finished := [id for id in rest if id not in rows]:
                rows |= dict(self._execute("retry", {**params, "ids": finished}))
            if self.listen and rows:
                wake_after_commit(connections[self.alias], set(rows.values()))
            return dict.fromkeys(rows, ControlOutcome.RETRIED)

        return self._control(ids, only, RETRYABLE, act, needs_key=True)

    def discard(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        """End jobs that wait as discarded."""
        who, why = who_and_why("Discarded", by, reason)

        def act(rest: list[int]) -> dict[int, ControlOutcome]:
            rows = self._execute("discard", {"ids": rest, "only": _states(only), "by": who, "reason": why, "now": now})
            return {id: ControlOutcome.DISCARDED for (id,) in rows}

        return self._control(ids, only, WAITING, act)

    def delete(self, ids: Collection[int], *, only: Collection[JobState] = ()) -> list[Controlled]:
        """Delete jobs that wait or are finished."""

        def act(rest: list[int]) -> dict[int, ControlOutcome]:
            done: dict[int, ControlOutcome] = {}
            for statement in ("delete", "delete_finished"):
                left = [id for id in rest if id not in done]
                rows = self._execute(statement, {"ids": left, "only": _states(only)}) if left else []
                done |= {id: ControlOutcome.DELETED for (id,) in rows}
            return done

        return self._control(ids, only, {*FINAL, *WAITING}, act)

    def find(
        self, jobs: JobFilter, *, after: int = 0, last: int, limit: int = 1000, now: datetime | None = None
    ) -> list[int]:
        """Return the next ids, in their order, above ``after`` and up to ``last``."""
        params = {**_filter(jobs), "after": after, "last": last, "limit": limit, "now": now}
        return sorted(id for table in _tables(jobs) for (id,) in self._execute(f"find_{table}", params))[:limit]

    def count(self, jobs: JobFilter, *, limit: int = 1_000_000, now: datetime | None = None) -> Found:
        """Count jobs, up to a limit."""
        count = last = 0
        for table in _tables(jobs):
            [(more, newest)] = self._execute(f"count_{table}", {**_filter(jobs), "limit": limit, "now": now})
            count, last = min(limit, count + more), max(last, newest)
        return Found(count, last)

    def newest(
        self, jobs: JobFilter, *, before: int | None = None, limit: int = 100, now: datetime | None = None
    ) -> Newest:
        """Return the jobs of the highest ids, highest first."""
        # One more than asked for tells whether there are others.
        params = {**_filter(jobs), "before": _END if before is None else before, "limit": limit + 1, "now": now}
        rows = (row for table in _tables(jobs) for row in self._execute(f"newest_{table}", params))
        # By id: a job that ends between the two statements is in both answers, and the later is true.
        found = sorted({row[0]: row for row in rows}.values(), reverse=True)
        newest = [job_of(row) for row in found[:limit]]
        return Newest(newest, newest[-1].id if len(found) > limit else None)

    def now(self) -> datetime:
        """Return the time by the database's clock."""
        [(now,)] = self._execute("now", {})
        return now  # type: ignore[no-any-return]

    def pause(self, queue: str, *, by: str = "", reason: str = "", now: datetime | None = None) -> bool:
        """Let nothing of a queue be fetched any more; return False if it is paused already."""
        values = {"queue": queue, "by": clean(by, BY_LENGTH), "reason": clean(reason, REASON_LENGTH), "now": now}
        return bool(self._execute("pause", values))

    def resume(self, queue: str) -> bool:
        """Let a paused queue go on and wake who sleeps on it; return False if it is not paused."""
        was_paused = bool(self._execute("resume", {"queue": queue}))
        if was_paused and self.listen:
            # What was put back during the pause may lie before the place from which a worker goes on.
            wake_after_commit(connections[self.alias], [queue, put_back(queue)])
        return was_paused

    def queues(self) -> list[QueueRules]:
        """Return the queues about which somebody decided something."""
        return list(map(QueueRules._make, self._execute("queues", {})))

    def workers(self) -> list[WorkerStatus]:
        """Return the workers that the store knows."""
        workers = map(WorkerStatus._make, self._execute("workers", {}))
        return [worker._replace(queues=json.loads(str(worker.queues))) for worker in workers]

    def _control(
        self,
        ids: Collection[int],
        only: Collection[JobState],
        eligible: Collection[str],
        act: Callable[[list[int]], dict[int, ControlOutcome]],
        *,
        needs_key: bool = False,
    ) -> list[Controlled]:
        """Act on the jobs, again on those that changed their table meanwhile, and explain what was not done."""
        if only:
            eligible = {state.value for state in only}.intersection(eligible)
        done: dict[int, ControlOutcome] = {}
        why: dict[int, tuple[str, int | None]] = {}
        rest = sorted({id for id in ids if 0 < id < 2**63})
        for _ in range(_TRIES):
            if not rest:
                break
            done |= act(rest)
            rest = [id for id in rest if id not in done]
            places = (
                {id: (state, held_by) for id, state, held_by in self._execute("whereabouts", {"ids": rest})}
                if rest
                else {}
            )
            why = {id: why_not(*places.get(id, (None, None)), eligible, needs_key=needs_key) for id in rest}
            rest = [id for id in rest if why[id] == TOO_FAST]
        return [
            Controlled(id, done[id]) if id in done else Controlled(id, ControlOutcome.SKIPPED, *why.get(id, MISSING))
            for id in ids
        ]

    def _execute(self, name: str, params: dict[str, Any]) -> list[Any]:
        """Run a statement in the caller's transaction; without one, again if it lost a race that the database resolved."""
        connection = connections[self.alias]
        for _ in range(_TRIES):
            try:
                with connection.cursor() as cursor:
                    cursor.execute(sql(name), params)
                    return rows_of(cursor)
            except OperationalError as error:
                if connection.in_atomic_block or not isinstance(error.__cause__, _TRANSIENT):
                    raise
                lost = error
                time.sleep(random.uniform(0, 0.05))  # noqa: S311  jitter, no secret
        raise EngineUnavailable(f"The database {self.alias!r} is busy: {str(lost).strip()}") from lost


def _states(states: Iterable[JobState]) -> list[str] | None:
    return [state.value for state in states] or None


def _filter(jobs: JobFilter) -> dict[str, Any]:
    return {**asdict(jobs), "states": _states(jobs.states)}


def _tables(jobs: JobFilter) -> list[str]:
    """Name the tables that can hold such jobs."""
    states = jobs.states or tuple(JobState)
    return [
        name
        for name, held in (("live", LIVE_STATES), ("finished", FINAL_STATES))
        if any(state in held for state in states)
    ]
