"""The verbs that control jobs and queues. One script reads and changes some hundred jobs, so no state can change in between."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from djqueue.engines.control import (
    BY_LENGTH,
    CANCELLABLE,
    FINAL,
    MISSING,
    REASON_LENGTH,
    RETRYABLE,
    WAITING,
    clean,
    who_and_why,
    why_not,
)
from djqueue.engines.redis.application import Application
from djqueue.engines.redis.client import Argument
from djqueue.engines.redis.codec import NUMBERS, STATES, clock
from djqueue.engines.redis.settling import settle
from djqueue.jobs.control import Controlled, ControlOutcome
from djqueue.jobs.states import JobState

_CHUNK = 200
"""How many jobs one run of a script changes: each takes a dozen commands."""
_EXECUTING = NUMBERS[JobState.EXECUTING]


class RedisController(Application):
    def cancel(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        arguments = (clock(now), digits(only), *who_and_why("Cancelled", by, reason))
        return self._control("cancel", arguments, ids, only, CANCELLABLE, ControlOutcome.CANCELLED)

    def retry(
        self, ids: Collection[int], *, only: Collection[JobState] = (), now: datetime | None = None
    ) -> list[Controlled]:
        return self._control("retry", (clock(now), digits(only)), ids, only, RETRYABLE, ControlOutcome.RETRIED)

    def discard(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        arguments = (clock(now), digits(only), *who_and_why("Discarded", by, reason))
        return self._control("discard", arguments, ids, only, WAITING, ControlOutcome.DISCARDED)

    def delete(self, ids: Collection[int], *, only: Collection[JobState] = ()) -> list[Controlled]:
        return self._control("delete", (digits(only),), ids, only, FINAL | WAITING, ControlOutcome.DELETED)

    def pause(self, queue: str, *, by: str = "", reason: str = "", now: datetime | None = None) -> bool:
        who, why = clean(by, BY_LENGTH), clean(reason, REASON_LENGTH)
        return bool(self.client.run("pause", clock(now), queue, who, why))

    def resume(self, queue: str) -> bool:
        return bool(self.client.run("resume", queue))

    def _control(
        self,
        verb: str,
        arguments: Sequence[Argument],
        ids: Collection[int],
        only: Collection[JobState],
        eligible: Collection[str],
        outcome: ControlOutcome,
    ) -> list[Controlled]:
        """Act on the jobs, and report why some were skipped."""
        if only:
            eligible = {state.value for state in only}.intersection(eligible)
        told: dict[int, Controlled] = {}
        possible = sorted({id for id in ids if 0 < id < 2**53})
        for first in range(0, len(possible), _CHUNK):
            part = possible[first : first + _CHUNK]
            while (answer := self.client.run(verb, *arguments, *part)) is None:
                settle(self.client, None)  # what ended must have had its effect before it is given back
            states, done, *holders, has_effects = answer
            if has_effects:
                settle(self.client, None)
            for place, id in enumerate(part):
                # Both strings have one digit per job.
                number, is_done = states[place] - 48, done[place] == 49
                if is_done and outcome is ControlOutcome.CANCELLED and number == _EXECUTING:
                    told[id] = Controlled(id, ControlOutcome.REQUESTED)
                elif is_done:
                    told[id] = Controlled(id, outcome)
                else:
                    holder = int(holders[0][place]) if holders and holders[0][place] else None
                    state = STATES[number - 1].value if number else None
                    why = why_not(state, holder, eligible, needs_key=True)
                    told[id] = Controlled(id, ControlOutcome.SKIPPED, *why)
        return [told.get(id) or Controlled(id, ControlOutcome.SKIPPED, *MISSING) for id in ids]


def digits(states: Collection[JobState]) -> str:
    """Return states as digits, the format of the scripts; empty: all."""
    return "".join(str(NUMBERS[state]) for state in states)
