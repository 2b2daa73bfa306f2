"""Describe why a worker process was lost, for the log and for the rescue of its jobs."""

from __future__ import annotations

import signal

from djqueue.maintenance.lifeline import Lost
from djqueue.runtime.children import Child

DEAD = "It sent no heartbeats for too long, so its jobs were rescued. The process is killed and replaced."
FORGOTTEN = "The store has no row for it: the store was emptied, has lost data, or is another one. The process is killed and replaced."


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
