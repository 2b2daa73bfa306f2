"""The verbs that control jobs and queues, on the application's connection.

A job may move to the other table between two statements of a verb: an ack moves it to the history, a retry moves it back.
So each write tries one table, then the other. A job that was changed by neither, but whose state can still be
controlled, is tried again. Each statement locks rows in id order and decides by the state of the locked row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from django.db import connections

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
from djqueue.engines.postgres.application import Application, states_of
from djqueue.engines.postgres.flows.effects import After, note_ends
from djqueue.engines.postgres.flows.settling import settle_after_commit
from djqueue.engines.postgres.wakes import put_back, wake_after_commit
from djqueue.jobs.control import Controlled, ControlOutcome
from djqueue.jobs.states import JobState

_TRIES = 5


class PostgresController(Application):
    def cancel(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        who, why = who_and_why("Cancelled", by, reason)

        def act(rest: list[int]) -> dict[int, ControlOutcome]:
            return self._end("cancel", rest, only, who, why, now, ControlOutcome.CANCELLED)

        return self._control(ids, only, CANCELLABLE, act)

    def retry(
        self, ids: Collection[int], *, only: Collection[JobState] = (), now: datetime | None = None
    ) -> list[Controlled]:
        """Wake sleepers after the caller's commit."""

        def act(rest: list[int]) -> dict[int, ControlOutcome]:
            params = {"ids": rest, "only": states_of(only), "now": now}
            rows = dict(self.execute("retry_waiting", params))
            if finished := [id for id in rest if id not in rows]:
                rows |= dict(self.execute("retry", {**params, "ids": finished}))
            if self.listen and rows:
                wake_after_commit(connections[self.alias], set(rows.values()))
            done = dict.fromkeys(rows, ControlOutcome.RETRIED)
            if left := [id for id in finished if id not in rows]:
                done |= self._revive(left, only)
            return done

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
        who, why = who_and_why("Discarded", by, reason)

        def act(rest: list[int]) -> dict[int, ControlOutcome]:
            return self._end("discard", rest, only, who, why, now, ControlOutcome.DISCARDED)

        return self._control(ids, only, WAITING, act)

    def delete(self, ids: Collection[int], *, only: Collection[JobState] = ()) -> list[Controlled]:
        def act(rest: list[int]) -> dict[int, ControlOutcome]:
            done = self._end("delete", rest, only, "", "", None, ControlOutcome.DELETED)
            if left := [id for id in rest if id not in done]:
                rows = self.execute("delete_finished", {"ids": left, "only": states_of(only)})
                done |= {id: ControlOutcome.DELETED for (id,) in rows}
            return done

        return self._control(ids, only, {*FINAL, *WAITING}, act)

    def pause(self, queue: str, *, by: str = "", reason: str = "", now: datetime | None = None) -> bool:
        values = {"queue": queue, "by": clean(by, BY_LENGTH), "reason": clean(reason, REASON_LENGTH), "now": now}
        return bool(self.execute("pause", values))

    def resume(self, queue: str) -> bool:
        was_paused = bool(self.execute("resume", {"queue": queue}))
        if was_paused and self.listen:
            # Jobs that were put back during the pause may lie before the key after which a worker continues its search.
            wake_after_commit(connections[self.alias], [queue, put_back(queue)])
        return was_paused

    def _revive(self, ids: list[int], only: Collection[JobState]) -> dict[int, ControlOutcome]:
        """Ask for finished jobs of workflows to be retried: what they stopped comes back with them, after the commit."""
        asked = [id for (id,) in self.execute("flow_retry_jobs", {"ids": ids, "only": states_of(only)})]
        if not asked:
            return {}
        settle_after_commit(connections[self.alias], wakes=self.listen)
        places = {id: state for id, state, *_ in self.execute("whereabouts", {"ids": asked})}
        return {id: ControlOutcome.REQUESTED if places.get(id) in FINAL else ControlOutcome.RETRIED for id in asked}

    def _end(
        self,
        verb: str,
        ids: list[int],
        only: Collection[JobState],
        by: str,
        reason: str,
        now: datetime | None,
        outcome: ControlOutcome,
    ) -> dict[int, ControlOutcome]:
        """End live jobs. A suspended job of a workflow ends after the commit, because an ack may need its row."""
        params = {"ids": ids, "only": states_of(only), "by": by, "reason": reason, "is_settling": False, "now": now}
        rows = self.execute(verb, params)
        if self.listen and (running := [f"cancel:{id}" for id, state, *_ in rows if state == "executing"]):
            # A transaction of the caller's sends it with its commit, as it does the request itself.
            self.execute("notify", {"queues": running})
        done = {
            id: ControlOutcome.REQUESTED if state in ("executing", "suspended") else outcome for id, state, *_ in rows
        }
        after = After()
        note_ends(rows, after)
        suspended = [id for id, state, *_ in rows if state == "suspended"]
        after.has_events |= bool(suspended)
        if after:
            settle_after_commit(connections[self.alias], wakes=self.listen, after=after)
        if suspended:
            places = {id: state for id, state, *_ in self.execute("whereabouts", {"ids": suspended})}
            done |= {id: outcome for id in suspended if places.get(id) not in CANCELLABLE}
        return done

    def _control(
        self,
        ids: Collection[int],
        only: Collection[JobState],
        eligible: Collection[str],
        act: Callable[[list[int]], dict[int, ControlOutcome]],
        *,
        needs_key: bool = False,
    ) -> list[Controlled]:
        """Act on the jobs, retry those that moved to the other table meanwhile, and report why others were skipped."""
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
            places = {id: place for id, *place in self.execute("whereabouts", {"ids": rest})} if rest else {}
            for id in rest:
                state, held_by, is_of_flow = places.get(id, (None, None, False))
                why[id] = why_not(state, held_by, eligible, needs_key=needs_key, is_of_flow=is_of_flow)
            rest = [id for id in rest if why[id] == TOO_FAST]
        return [
            Controlled(id, done[id]) if id in done else Controlled(id, ControlOutcome.SKIPPED, *why.get(id, MISSING))
            for id in ids
        ]
