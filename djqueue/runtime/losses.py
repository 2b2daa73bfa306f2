"""Describe why a worker process was lost, for the log and for the rescue of its jobs."""

from __future__ import annotations

import signal

from djqueue.jobs.silence import SILENT_SECONDS
from djqueue.maintenance.lifeline import Lost
from djqueue.runtime.children import Child

_END = "The process is killed and replaced."
_DEAD = f"It sent no heartbeats for too long, so its jobs were rescued. {_END}"
_FORGOTTEN = f"The store has no row for it: the store was emptied, has lost data, or is another one. {_END}"


def refusal(*, is_marked: bool, silent_seconds: float) -> str:
    """Describe why the store does not take a worker's heartbeat; ``is_marked``: its row is there and marked as dead.

    After a long silence the row of a worker whose jobs were rescued is deleted, so a missing row does not mean that data were lost.
    """
    if is_marked:
        return _DEAD
    if silent_seconds > SILENT_SECONDS:
        return (
            f"The store has no row for it any more: it sent no heartbeats for {silent_seconds:.0f} seconds, so its jobs were"
            f" rescued and its row was deleted, or the store has lost data. {_END}"
        )
    return _FORGOTTEN


def reason(code: int, *, is_working: bool) -> str:
    """Describe how a process ended, from its exit code."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code} {'while it worked' if is_working else 'before it was ready'}"


def loss(one: Child, reason: str) -> Lost:
    """Return what the rescue needs: what the worker ran, and why that ended."""
    if one.overdue:
        # The other jobs of the process keep their attempt.
        return Lost(one.id, one.overdue, "The task ran longer than its timeout, and its process was killed to end it.")
    return Lost(one.id, one.claims.begun(), f"The worker process {reason}.")
