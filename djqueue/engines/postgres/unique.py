"""Insert jobs with unique keys.

ON CONFLICT decides, never a look before it: an insert waits for an uncommitted twin, and goes on if that one is rolled
back. A look comes afterwards, to say who holds the key or to change him. Between the two the holder may have ended, so
what is not settled is inserted again.

A live job holds its key by the partial unique index of the live table. What reaches beyond a job's life stands in
djqueue_uniquekey, written in the insert's statement. A hold that is over is noticed by the next insert that meets it:
then the row is removed, if it is still that job's, and the insert done again.

In a transaction at REPEATABLE READ or above, a twin that was committed after the transaction's snapshot cannot be seen;
PostgreSQL answers with the serialization failure for which such a transaction must be ready. Outside of one, a
statement that lost such a race is run again here.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
from django.db import IntegrityError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.statements import sql
from djqueue.engines.protocol import STAGE
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import InsertedJob, NewJob, UniqueRule

TRANSIENT = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
_TRIES = 10


def insert_unique(
    connection: BaseDatabaseWrapper,
    jobs: Sequence[NewJob],
    rule: UniqueRule,
    now: datetime | None,
    *,
    relaxed: bool,
    are_held: bool = False,
) -> tuple[list[InsertedJob], set[str]]:
    """Store jobs, or say which job stands for each of them; return also the queues that got available jobs.

    ``relaxed``: their commits do not wait for the disk; only if no transaction of the caller's is open. ``are_held``: a
    moment ago others held their keys.
    """
    insertion = _DjangoInsertion(connection, jobs, rule, now, relaxed=relaxed)
    return insertion.run(are_held=are_held), insertion.ready_in


def is_simple(rule: UniqueRule) -> bool:
    """Say whether a job is stored if no live job holds its key, and nothing else has to be looked at."""
    return not (rule.follow_up or rule.holds_completed or rule.window is not None)


def job_columns(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """Return one list per column."""
    return dict(zip(NewJob._fields, map(list, zip(*jobs, strict=True)), strict=True))


class Insertion(ABC):
    """The statements that store jobs with unique keys, in their order; how they are run is up to a subclass."""

    is_in_transaction: bool

    def __init__(self, jobs: Sequence[NewJob], rule: UniqueRule, now: datetime | None, *, relaxed: bool) -> None:
        self._jobs = jobs
        self._rule = rule
        self._common = {"now": now, "relaxed": relaxed}
        self._outlives = rule.window is not None or rule.holds_completed
        self._answers: dict[int, InsertedJob] = {}
        self.ready_in: set[str] = set()

    def run(self, *, are_held: bool) -> list[InsertedJob]:
        missing: Sequence[int] = range(len(self._jobs))
        # Almost always once. Again for a job whose key was held when it was inserted and is not when we look. Somebody who
        # finishes one job of that key after the other could go on for ever.
        for _ in range(_TRIES):
            if self._rule.follow_up:
                # First, so that the newest values are those that run last, whatever the holder does meanwhile.
                missing = self._revise_follow_ups(missing)
            if not are_held:
                self._insert(missing)
            are_held = False
            missing = self._unanswered(missing)
            if missing:
                self._settle(missing)
                missing = self._unanswered(missing)
            if not missing:
                return [self._answers[place] for place in range(len(self._jobs))]
        raise EngineUnavailable(
            "Cannot determine which job holds the unique key: jobs with this key change too fast. Try again."
        )

    def _revise_follow_ups(self, places: Sequence[int]) -> Sequence[int]:
        """Give the newest values to the follow-ups that there are; return the places without one."""
        next = [f"{key}:next" for key in self._keys(places)]
        # The look costs a quarter of the statement that it almost always saves, and decides nothing.
        found = {key.removesuffix(":next") for key, *_ in self._execute("holders", {"keys": next})} if next else ()
        followed = [place for place in places if self._key(place) in found]
        revised = self._revise(followed, suffix=":next")
        self._answer_duplicates(followed, self._begin_free(revised))
        return self._unanswered(places)

    def _begin_free(self, follow_ups: dict[str, InsertedJob]) -> dict[str, InsertedJob]:
        """Let follow-ups that this caller has locked begin, with its commit, if their predecessors have ended.

        The ack of the predecessor, and the stager, pass over a locked row. Callers whose transactions follow each other closely
        would keep the follow-up from beginning for ever.
        """
        if not follow_ups:
            return follow_ups
        if self.is_in_transaction:
            # The predecessor may end between this look and the commit.
            self.ready_in.add(STAGE)
        held = {key for key, *_ in self._execute("holders", {"keys": list(follow_ups)})}
        keys = {job.id: key for key, job in follow_ups.items() if key not in held}
        if not keys:
            return follow_ups
        savepoint = self._save()
        try:
            rows = self._execute("release", {"keys": list(keys.values()), "milliseconds": None})
        except (IntegrityError, psycopg.IntegrityError):
            # Another job has just taken a key. The stager begins the others.
            self._undo(savepoint)
            rows = []
        else:
            self._keep(savepoint)
        for id, queue, state in rows:
            follow_ups[keys[id]] = follow_ups[keys[id]]._replace(state=state)
            self.ready_in.add(queue if state == "available" else STAGE)
        return follow_ups

    def _insert(self, places: Sequence[int]) -> None:
        if not places:
            return
        columns = job_columns([self._jobs[place] for place in places])
        if self._outlives:
            rows = self._execute("insert_held", {**columns, "window": self._rule.window})
            void = {self._jobs[place].unique_key: row[4] for place, row in zip(places, rows, strict=True) if row[4]}
            if void:
                self._execute("unhold", {"keys": list(void), "job_ids": list(void.values())})
        else:
            rows = self._execute("insert", columns)
        for place, row in zip(places, rows, strict=True):
            answer = InsertedJob._make(row[:4])
            if not answer.was_duplicate:
                self._answers[place] = answer
                if answer.state == "available":
                    self.ready_in.add(self._jobs[place].queue)

    def _settle(self, places: Sequence[int]) -> None:
        """Say which job stands for each duplicate, after it has taken what the duplicate brought."""
        changes_holder = self._rule.replace or self._rule.reschedule
        if changes_holder:
            self._answer_duplicates(places, self._revise(places))
            places = self._unanswered(places)
        holders: dict[str, InsertedJob] = {}
        followed: list[str] = []
        keys = self._keys(places)
        for key, *row in self._execute("holders", {"keys": keys}) if keys else ():
            holder = InsertedJob._make([*row, True])
            if holder.state != "executing":
                # It began to wait only after we wanted to change it: once more.
                if not changes_holder:
                    holders[key] = holder
            elif self._rule.follow_up:
                followed.append(key)
            else:
                holders[key] = holder
        if holders and self._rule.follow_up and self.is_in_transaction:
            # One that began before the commit would not see what the caller writes.
            waiting = {key for key, holder in holders.items() if holder.state != "executing"}
            held = self._hold(waiting)
            holders = {key: holder for key, holder in holders.items() if key not in waiting} | held
            followed += waiting - held.keys()
        if followed:
            self._add_follow_ups([place for place in places if self._jobs[place].unique_key in followed])
        if self._outlives:
            holders |= self._ended_holders([key for key in keys if key not in holders])
        self._answer_duplicates(places, holders)

    def _hold(self, keys: Collection[str]) -> dict[str, InsertedJob]:
        """Keep waiting holders from beginning before the caller's commit; return those that do not begin."""
        while keys:
            # See _revise: one that began while we waited for its row must not stay locked.
            savepoint = self._save()
            rows = self._execute("hold", {"keys": sorted(keys)})
            if len(rows) < len(keys):
                self._undo(savepoint)
                keys = {row[0] for row in rows}
                continue
            self._keep(savepoint)
            # Workers pass over what is held, and may sleep by then.
            self.ready_in |= {queue for *_, state, _, queue in rows if state == "available"}
            return {key: InsertedJob._make([*row, True]) for key, *row, _ in rows}
        return {}

    def _ended_holders(self, keys: Sequence[str]) -> dict[str, InsertedJob]:
        """Return who holds keys without being live, and remove those whose hold is over."""
        if not keys:
            return {}
        rows = self._execute("unique_key", {"keys": list(keys), "completed_only": self._rule.holds_completed})
        if over := {key: job_id for key, job_id, *_, is_over in rows if is_over}:
            self._execute("unhold", {"keys": list(over), "job_ids": list(over.values())})
        return {key: InsertedJob._make([*row, True]) for key, *row, is_over in rows if not is_over}

    def _add_follow_ups(self, places: Sequence[int]) -> None:
        newest = self._newest(places)
        rows = self._execute("insert_follow_up", job_columns(newest))
        added = self._begin_free({key: InsertedJob._make([*row, False]) for key, *row in rows})
        for place in places:
            if (answer := added.get(self._key(place))) is not None:
                self._answers[place] = answer
                added[self._key(place)] = answer._replace(was_duplicate=True)

    def _revise(self, places: Sequence[int], suffix: str = "") -> dict[str, InsertedJob]:
        """Give the waiting holders what the newest of their duplicates brought; return those that took it."""
        newest = self._newest(places)
        params = {
            "suffix": suffix,
            # A follow-up is there for the newest values.
            "replace": self._rule.replace or bool(suffix),
            "reschedule": self._rule.reschedule,
        }
        while newest:
            # A holder that began to run while we waited for its row is left alone, but by then we have locked it, and
            # its worker could not record the outcome before the caller's commit. A savepoint gives the lock back. (A
            # follow-up does not run.)
            savepoint = None if suffix else self._save()
            rows = self._execute("revise", {**job_columns(newest), **params})
            if len(rows) < len(newest) and savepoint is not None:
                self._undo(savepoint)
                done = {row[0] for row in rows}
                newest = [job for job in newest if job.unique_key in done]
                continue
            self._keep(savepoint)
            # Workers pass over a row while its caller's transaction is open, and may sleep by the end of it.
            is_passed_over = self.is_in_transaction
            self.ready_in |= {
                queue for *_, queue, ready, was_ready in rows if ready and (is_passed_over or not was_ready)
            }
            return {key: InsertedJob._make([*row, True]) for key, *row, _, _, _ in rows}
        return {}

    def _answer_duplicates(self, places: Sequence[int], holders: Mapping[str, InsertedJob]) -> None:
        for place in places:
            if (holder := holders.get(self._key(place))) is not None:
                self._answers.setdefault(place, holder)

    def _unanswered(self, places: Sequence[int]) -> list[int]:
        return [place for place in places if place not in self._answers]

    def _key(self, place: int) -> str:
        return self._jobs[place].unique_key or ""

    def _keys(self, places: Sequence[int]) -> list[str]:
        return [*{self._key(place): None for place in places if self._key(place)}]

    def _newest(self, places: Sequence[int]) -> list[NewJob]:
        """Return the last job of each key."""
        return [*{self._key(place): self._jobs[place] for place in places if self._key(place)}.values()]

    @abstractmethod
    def _execute(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement."""

    @abstractmethod
    def _save(self) -> str | None:
        """Begin what may be undone; None: nothing could be, each statement is a transaction of its own."""

    @abstractmethod
    def _undo(self, savepoint: str | None) -> None:
        """Take back what was done since the savepoint."""

    @abstractmethod
    def _keep(self, savepoint: str | None) -> None:
        """Release the savepoint and keep what was done since."""


class _DjangoInsertion(Insertion):
    """On the application's connection, in its transaction if there is one."""

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        jobs: Sequence[NewJob],
        rule: UniqueRule,
        now: datetime | None,
        *,
        relaxed: bool,
    ) -> None:
        super().__init__(jobs, rule, now, relaxed=relaxed)
        self._connection = connection
        self.is_in_transaction = connection.in_atomic_block or not connection.get_autocommit()

    def _execute(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement; again if it lost a race that the database resolved, and no transaction was lost with it."""
        for final in [False] * (_TRIES - 1) + [True]:
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute(sql(name), {**params, **self._common})
                    return rows_of(cursor)
            except OperationalError as error:
                is_transient = isinstance(error.__cause__, TRANSIENT)
                if (
                    final
                    or not is_transient
                    or self._connection.in_atomic_block
                    or not self._connection.get_autocommit()
                ):
                    raise
                time.sleep(random.uniform(0, 0.05))  # noqa: S311  jitter, no secret
        raise AssertionError("unreachable")

    def _save(self) -> str | None:
        return self._connection.savepoint()

    def _undo(self, savepoint: str | None) -> None:
        if savepoint is not None:
            self._connection.savepoint_rollback(savepoint)
            self._connection.savepoint_commit(savepoint)

    def _keep(self, savepoint: str | None) -> None:
        if savepoint is not None:
            self._connection.savepoint_commit(savepoint)
