"""Insert jobs with unique keys.

ON CONFLICT decides whether a job is a duplicate, never a SELECT before it: an insert waits for an uncommitted holder of the
key, and succeeds if that one is rolled back. A SELECT after it finds the holder, to return or change it. Between the two
the holder may have ended; then the job is inserted again.

A live job holds its key by the partial unique index of the live table. A key that is held beyond a job's life is a row of
djqueue_uniquekey, written by the statement that inserts the job. The next insert of the key finds out that such a hold has
expired: it deletes the row, if it still belongs to that job, and inserts again.

In a transaction at REPEATABLE READ or above, a holder that was committed after the transaction's snapshot is not visible.
PostgreSQL raises a serialization failure, for which the code around such a transaction must be prepared. Outside a
transaction, the statement is retried here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.engines.postgres.execution import Execute, run_here
from djqueue.engines.protocol import STAGE
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import InsertedJob, NewJob, UniqueRule

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
    """Store jobs or find the jobs that hold their keys; return also the queues that got available jobs.

    ``relaxed``: the commits do not wait for the disk; only if the caller has no open transaction. ``are_held``: a moment
    ago other jobs held the keys.
    """
    is_in_transaction = connection.in_atomic_block or not connection.get_autocommit()
    execute = partial(run_here, connection)
    insertion = Insertion(execute, jobs, rule, now, relaxed=relaxed, is_in_transaction=is_in_transaction)
    return insertion.run(are_held=are_held), insertion.ready_in


def is_simple(rule: UniqueRule) -> bool:
    """Return whether the rule only requires that no live job hold the key."""
    return not (rule.follow_up or rule.holds_completed or rule.window is not None)


def job_columns(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """Return one list per column."""
    return dict(zip(NewJob._fields, map(list, zip(*jobs, strict=True)), strict=True))


class Insertion:
    """The order of the statements that store jobs with unique keys, on Django's connection or on one of djqueue's own."""

    def __init__(
        self,
        execute: Execute,
        jobs: Sequence[NewJob],
        rule: UniqueRule,
        now: datetime | None,
        *,
        is_in_transaction: bool,
        relaxed: bool = False,
    ) -> None:
        self._run = execute
        self._jobs = jobs
        self._rule = rule
        self._common = {"now": now, "relaxed": relaxed}
        self._is_in_transaction = is_in_transaction
        self._outlives = rule.window is not None or rule.holds_completed
        self._answers: dict[int, InsertedJob] = {}
        self.ready_in: set[str] = set()

    def run(self, *, are_held: bool = False) -> list[InsertedJob]:
        missing: Sequence[int] = range(len(self._jobs))
        # Almost always one pass. Another one for a job whose key was held at its insert and free when the holder was
        # searched. If jobs of that key are finished one after the other, this could go on for ever.
        for _ in range(_TRIES):
            if self._rule.follow_up:
                # Follow-ups first, so that the newest values run last, even if the holder ends meanwhile.
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
        """Update existing follow-ups to the newest values; return the places without one."""
        next = [f"{key}:next" for key in self._keys(places)]
        # This query costs a quarter of the statement that it almost always saves. It decides nothing.
        found = {key.removesuffix(":next") for key, *_ in self._execute("holders", {"keys": next})} if next else ()
        followed = [place for place in places if self._key(place) in found]
        revised = self._revise(followed, suffix=":next")
        self._answer_duplicates(followed, self._begin_free(revised))
        return self._unanswered(places)

    def _begin_free(self, follow_ups: dict[str, InsertedJob]) -> dict[str, InsertedJob]:
        """Release follow-ups that this caller has locked, at its commit, if their predecessors have ended.

        The ack of the predecessor, and the stager, skip a locked row. Callers whose transactions follow each other closely
        would otherwise keep the follow-up suspended for ever.
        """
        if not follow_ups:
            return follow_ups
        if self._is_in_transaction:
            # The predecessor may end between this query and the commit.
            self.ready_in.add(STAGE)
        held = {key for key, *_ in self._execute("holders", {"keys": list(follow_ups)})}
        keys = {job.id: key for key, job in follow_ups.items() if key not in held}
        if not keys:
            return follow_ups
        self._save()
        try:
            rows = self._execute("release", {"keys": list(keys.values()), "milliseconds": None})
        except (IntegrityError, psycopg.IntegrityError):
            # Another job has just taken a key. The stager releases the others.
            self._undo()
            rows = []
        else:
            self._keep()
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
        """Find the job that holds the key of each duplicate, after applying the changes that the duplicate brings."""
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
                # It was put back only after the attempt to change it: try again.
                if not changes_holder:
                    holders[key] = holder
            elif self._rule.follow_up:
                followed.append(key)
            else:
                holders[key] = holder
        if holders and self._rule.follow_up and self._is_in_transaction:
            # A holder that starts before the commit would not see the caller's writes.
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
        """Keep waiting holders from starting before the caller's commit; return those that are held back."""
        while keys:
            # See _revise: a holder that started while this statement waited for its row must not stay locked.
            self._save()
            rows = self._execute("hold", {"keys": sorted(keys)})
            if len(rows) < len(keys):
                self._undo()
                keys = {row[0] for row in rows}
                continue
            self._keep()
            # Workers skip these locked rows, and may be asleep at the commit.
            self.ready_in |= {queue for *_, state, _, queue in rows if state == "available"}
            return {key: InsertedJob._make([*row, True]) for key, *row, _ in rows}
        return {}

    def _ended_holders(self, keys: Sequence[str]) -> dict[str, InsertedJob]:
        """Return the finished jobs that still hold keys, and delete the holds that have expired."""
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
        """Apply the newest of their duplicates to the waiting holders; return the holders that were changed."""
        newest = self._newest(places)
        params = {
            "suffix": suffix,
            # The purpose of a follow-up is to run with the newest values.
            "replace": self._rule.replace or bool(suffix),
            "reschedule": self._rule.reschedule,
        }
        while newest:
            # A holder that started while this statement waited for its row is not changed. But the statement has locked
            # the row by then, and the worker could not store the outcome before the caller's commit. Rolling back to a
            # savepoint releases the lock. (A follow-up needs none: it does not run.)
            is_saved = self._is_in_transaction and not suffix
            if is_saved:
                self._save()
            rows = self._execute("revise", {**job_columns(newest), **params})
            if is_saved and len(rows) < len(newest):
                self._undo()
                done = {row[0] for row in rows}
                newest = [job for job in newest if job.unique_key in done]
                continue
            if is_saved:
                self._keep()
            # Workers skip a row that an open transaction has locked, and may be asleep when that transaction ends.
            is_passed_over = self._is_in_transaction
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

    def _execute(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._run(name, {**params, **self._common})

    def _save(self) -> None:
        """Create a savepoint, if there is a transaction. Otherwise each statement is one of its own, and nothing can be undone."""
        if self._is_in_transaction:
            self._run("savepoint", {})

    def _undo(self) -> None:
        if self._is_in_transaction:
            self._run("savepoint_undo", {})
            self._keep()

    def _keep(self) -> None:
        if self._is_in_transaction:
            self._run("savepoint_keep", {})
