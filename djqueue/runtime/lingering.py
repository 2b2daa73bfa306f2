"""Find jobs that have their outcome and keep their slot, because code that is called after the task does not return.

That is a receiver of ``task_finished``, a handler of telemetry, or a database connection that cannot be given back. No
timeout covers it, since the task has ended, and the job itself looks completed. A worker whose slots are all held this way
sends heartbeats and runs nothing.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType

from djqueue import telemetry
from djqueue.adapters.python import thread_frames
from djqueue.runtime.execution import Execution
from djqueue.runtime.lanes import Lane

REPORT_SECONDS = 60.0
"""How long the code after a task may take before it is reported."""
GIVE_UP_SECONDS = 300.0
"""How long it may take before the worker stops waiting for it, and is replaced if nothing is left that could run a job."""
_LOOK_SECONDS = 1.0


class Lingering:
    """Looks from outside, so that a job costs nothing."""

    def __init__(self, lanes: Sequence[Lane], running: Mapping[int, Execution]) -> None:
        self._lanes = lanes
        self._running = running
        self._ended: dict[Execution, float] = {}
        """When each execution was first seen in its slot without being among those that run."""
        self._reported: set[Execution] = set()
        self._given_up: set[Execution] = set()
        self._looked_at = 0.0

    def __len__(self) -> int:
        """The number of slots that are given up."""
        return len(self._given_up)

    @property
    def stops_a_lane(self) -> bool:
        """Whether all slots of a lane are given up."""
        if not self._given_up:
            return False
        return any(len(self._given_up.intersection(lane.occupants())) >= lane.slots for lane in self._lanes)

    def look(self) -> None:
        """Report each job whose slot has been held for too long, once."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        ended = [
            execution
            for lane in self._lanes
            for execution in lane.occupants()
            if self._running.get(execution.claim_slot) is not execution
        ]
        self._ended = {execution: self._ended.get(execution, now) for execution in ended}
        self._given_up = self._held_for(GIVE_UP_SECONDS, now)
        held = self._held_for(REPORT_SECONDS, now)
        new, self._reported = held - self._reported, held
        for execution in new:
            telemetry.emit(
                "djqueue.job.lingering",
                logging.ERROR,
                exc_text=_stack_of(execution),
                job=execution.job.id,
                task=execution.job.task,
                seconds=now - self._ended[execution],
            )

    def _held_for(self, seconds: float, now: float) -> set[Execution]:
        return {execution for execution, since in self._ended.items() if now - since >= seconds}


def _stack_of(execution: Execution) -> str | None:
    """Return where the thread of this execution is, as the lines of a traceback; None if it has no thread."""
    for innermost in thread_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            is_ours = frame.f_globals.get("__name__", "").startswith("djqueue.runtime.")
            if (
                is_ours
                and frame.f_code.co_name in ("_run", "finished")
                and frame.f_locals.get("execution") is execution
            ):
                return "Stack of its thread (most recent call last):\n" + "".join(traceback.format_stack(innermost))
            frame = frame.f_back
    return None
