"""Why a worker process was lost, in words and for the rescue of its jobs."""

from __future__ import annotations

import signal

from djqueue.maintenance.lifeline import Lost
from djqueue.runtime.children import Child

DEAD = "It was silent for too long, so others have taken its jobs back. What it runs is cut off, and another takes its place."
FORGOTTEN = (
    "The store does not know it any more: the store was emptied, has lost what it held, or is another one. What it runs is cut off,"
    " and another takes its place."
)


def reason(code: int, *, is_working: bool) -> str:
    """Say how a process ended, from its exit code."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code} {'in the middle of its work' if is_working else 'before it was ready'}"


def loss(one: Child, reason: str) -> Lost:
    """Return what the rescue has to know: what it ran, and why that ended."""
    if one.overdue:
        # Its neighbours are innocent: they go back unspent.
        return Lost(one.id, one.overdue, "The task ran longer than its timeout, and only killing its process ended it.")
    return Lost(one.id, one.claims.begun(), f"The worker process {reason}.")
