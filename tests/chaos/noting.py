"""What a job notes about itself: its start as its first act, and how it ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from djqueue import Cancel, Discard, Snooze
from tests.chaos.ledger import DIRECTORY, Ledger


@cache
def ledger() -> Ledger:
    return Ledger(Path(os.environ[DIRECTORY]))


@contextmanager
def noted(context: Any, *, returned: str = "returned") -> Iterator[None]:
    """Note the start, and at the end whether the job returned, wants to run again, or has failed.

    ``returned="unclear"`` for a job that returns after it broke its connection: it may be completed or run again.
    """
    job = {"job": context.job.id, "attempt": context.attempt, "pid": os.getpid()}
    ledger().note("start", queue=context.job.queue, **job)
    outcome = "broken off"
    try:
        yield
        outcome = returned
    except Snooze:
        outcome = "again"
        raise
    except (Cancel, Discard):
        outcome = "ended"
        raise
    except (Exception, SystemExit, KeyboardInterrupt):
        outcome = "ended" if context.job.is_last_attempt else "again"
        raise
    finally:
        if os.getpid() == job["pid"]:  # else this is the copy that a fork made, and the job is not its own
            ledger().note("end", outcome=outcome, **job)
