"""The transactions in which ends outside an ack take effect, and in which counts are added up.

Right after a commit, the process that committed does it. What it leaves, because it died or because its transaction is not Django's, the
stager finds within a second.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import psycopg
from django.db import DatabaseError, InterfaceError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.rows import TupleRow

from djqueue.adapters.django import commit_hooks
from djqueue.engines.postgres.columns import numbers
from djqueue.engines.postgres.direct import is_own_transaction
from djqueue.engines.postgres.execution import Execute, run_on
from djqueue.engines.postgres.flows.effects import After, End, control, fold, link, release, retry
from djqueue.engines.postgres.session import Session
from djqueue.engines.postgres.wakes import wake_after_commit
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.flows import Settled

logger = logging.getLogger("djqueue.flow")

_ENDS_LIMIT = 1000
_ENDS = ("ended",)
_OTHERS = ("link", "cancel", "discard", "delete", "close", "retry")
_ROUNDS = 100
"""What a committer does at most for others; the stager does the rest."""

Work = Callable[[Execute], Any]
Transact = Callable[[Work], Any]


class Settler:
    """``transact`` runs a function in a transaction of its own, and again after a deadlock."""

    def __init__(
        self,
        transact: Transact,
        now: datetime | None = None,
        *,
        may_wait: bool = True,
        skipped: set[int] | None = None,
    ) -> None:
        """``may_wait``: handle also events that may wait for a row that the application has locked.

        ``skipped``: events to leave, to which those are added that the database refuses. None: an error is raised.
        """
        self._transact = transact
        self._now = now
        self._kinds = (*_ENDS, *_OTHERS) if may_wait else _ENDS
        self._skipped = skipped
        self._busy: set[int] = set()
        self.queues: set[str] = set()
        """Queues to wake."""

    def after(self, after: After) -> None:
        """Do what follows a commit: add up the counts of the transaction, and let the events take effect."""
        rest = After()
        rest.add(after)
        for _ in range(_ROUNDS):
            if rest.counts:
                rest.add(self._fold_own(rest))
            elif rest.has_events:
                done, count = self._events(_ENDS_LIMIT)
                rest.add(done)
                if not count:
                    break
            else:
                break
        self.queues |= rest.queues

    def settle(self, limit: int) -> Settled:
        """Do what was left behind."""
        rest, counts = self._fold(None, limit)
        events = 0
        while events < limit:
            if rest.counts:
                rest.add(self._fold_own(rest))
                continue
            done, count = self._events(limit)
            rest.add(done)
            events += count
            if not count:
                break
        self.queues |= rest.queues
        return Settled(events, counts, counts >= limit or events >= limit)

    def _fold_own(self, rest: After) -> After:
        ids, rest.counts = rest.counts, []
        return self._fold(ids, len(ids))[0]

    def _fold(self, ids: list[int] | None, limit: int) -> tuple[After, int]:
        def work(execute: Execute) -> tuple[After, int]:
            after = After()
            return after, fold(execute, ids, limit, after, self._now)

        result: tuple[After, int] = self._transact(work)
        return result

    def _events(self, limit: int) -> tuple[After, int]:
        """Let the oldest events of one kind take effect; return how many did."""
        for kind in self._kinds:
            at_most = limit if kind == "ended" else 1
            while at_most:
                taken: list[int] = []
                try:
                    after, count = self._take(kind, at_most, taken)
                except (EngineRefused, EngineUnavailable) as error:
                    # Each event that fails alone is left, so that the others take effect.
                    if not taken or self._skipped is None or not (isinstance(error, EngineRefused) or error.is_undone):
                        raise
                    if len(taken) == 1:
                        self._skip(taken[0], error)
                    at_most = 1
                    continue
                if count:
                    return after, count
                break
        return After(), 0

    def _skip(self, event: int, error: Exception) -> None:
        if self._skipped is not None and isinstance(error, EngineRefused):
            logger.error("Cannot settle event %d of a workflow; skipping it until the leader changes: %s", event, error)
            self._skipped.add(event)
        else:
            self._busy.add(event)

    def _take(self, kind: str, limit: int, taken: list[int]) -> tuple[After, int]:
        def work(execute: Execute) -> tuple[After, int]:
            after = After()
            skipped = numbers(sorted(self._busy.union(self._skipped or ())))
            events = execute("flow_events", {"kind": kind, "limit": limit, "skipped": skipped})
            taken[:] = [event[0] for event in events]
            if kind == "ended":
                release(execute, [_end(*event[1:]) for event in events], after, self._now)
            for _, subject, _, detail in events if kind != "ended" else ():
                asked = json.loads(detail or "{}")
                if kind == "link":
                    link(execute, subject, asked, after, self._now)
                elif kind == "retry":
                    if not retry(execute, subject, after, self._now):
                        return after, 0
                elif kind == "close":
                    [(counts,)] = execute("flow_closed", {"id": subject})
                    after.counts += counts or ()
                else:
                    control(execute, kind, subject, asked, after, self._now)
            return after, len(events)

        result: tuple[After, int] = self._transact(work)
        return result


def _end(subject: int, state: str, detail: str | None) -> End:
    rest = json.loads(detail) if detail else {}
    return End(subject, state, None, rest.get("after"), rest.get("until"))


def on_session(session: Session) -> Transact:
    """Return a function that runs transactions on a connection of djqueue's own."""

    def transact(work: Work) -> Any:
        def in_transaction(connection: psycopg.Connection[TupleRow]) -> Any:
            with connection.transaction(), connection.cursor() as cursor:
                return work(run_on(cursor))

        return session.attempt(in_transaction)

    return transact


def settle_on(session: Session, after: After, now: datetime | None) -> None:
    """Do what follows a commit on a connection of djqueue's own.

    What was committed is done, so an error is only logged; the stager repeats it. Events that may wait for the application are
    left to the stager, because no outcome may wait behind them.
    """
    settler = Settler(on_session(session), now, may_wait=False)
    try:
        session.wake(after.queues)
        after.queues = set()
        settler.after(after)
        session.wake(settler.queues)
    except (EngineUnavailable, EngineRefused, psycopg.Error) as error:
        logger.warning("Could not settle workflows right after a commit; the stager will: %s", error)


def settle_after_commit(connection: BaseDatabaseWrapper, *, wakes: bool, after: After | None = None) -> None:
    """Let events of the caller's transaction take effect as soon as it has committed.

    ``after``: what else follows the commit. In a transaction that Django does not manage it is left to the stager.
    """
    hook = _Hook(connection, wakes)
    hook.after.add(after or After(has_events=True))
    if not connection.in_atomic_block:
        if is_own_transaction(connection):
            hook()
    elif (pending := _pending(connection)) is not None:
        pending.after.add(hook.after)
    else:
        transaction.on_commit(hook, using=connection.alias, robust=True)
        connection._djqueue_settle = (hook, len(commit_hooks(connection)) - 1)  # type: ignore[attr-defined]


class _Hook:
    def __init__(self, connection: BaseDatabaseWrapper, wakes: bool) -> None:
        self._connection = connection
        self._wakes = wakes
        self.after = After()

    def __call__(self) -> None:
        def transact(work: Work) -> Any:
            with transaction.atomic(self._connection.alias), self._connection.cursor() as cursor:
                return work(run_on(cursor))

        settler = Settler(transact)
        try:
            settler.after(self.after)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Could not settle workflows right after the commit; the stager will: %s", error)
        if self._wakes and settler.queues:
            wake_after_commit(self._connection, settler.queues)


def _pending(connection: BaseDatabaseWrapper) -> _Hook | None:
    """Return the hook of this transaction, as ``wakes`` does."""
    hook, place = getattr(connection, "_djqueue_settle", (None, 0))
    hooks = commit_hooks(connection)
    return cast(_Hook, hook) if hook is not None and place < len(hooks) and hooks[place][1] is hook else None
