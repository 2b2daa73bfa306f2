"""One claimed job on its way through a worker, from the fetch to its outcome."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from djqueue.exceptions import Cancel, JobSignal, TaskTimeout
from djqueue.jobs.records import ClaimedJob
from djqueue.runtime.statements import Statements
from djqueue.tasks.cancellation import Cancelled
from djqueue.tasks.results import TaskResult
from djqueue.tasks.task import Task


class Failure(NamedTuple):
    """The exception that ended an execution and its traceback as text, which the store, the log and the signals share."""

    error: BaseException
    traceback: str


class Execution:
    """A claimed job, its task, and what the lane, the executor, the timekeeper and cancel requests know of its run.

    A plain object with slots: there is one per job on the hot path. ``cancelled`` is made on first use.
    """

    __slots__ = (
        "_cancelled",
        "asked_at",
        "cancel_reason",
        "claim_slot",
        "claimed_at",
        "deadline",
        "future",
        "is_async",
        "is_overdue",
        "is_stuck",
        "job",
        "result",
        "started",
        "statements",
        "task",
    )

    def __init__(self, job: ClaimedJob, task: Task, claim_slot: int, claimed_at: float) -> None:
        """``claim_slot`` is the index of the claim in the claim block, ``claimed_at`` is ``time.monotonic()`` of the fetch."""
        self.job = job
        self.task = task
        self.is_async = task.is_async
        self.claim_slot = claim_slot
        self.claimed_at = claimed_at
        self.started = 0.0
        """``time.monotonic()`` at which the function was called; 0 until then."""
        self.deadline: float | None = None
        self.future: asyncio.Task[None] | None = None
        """The asyncio task of an async job."""
        self.is_overdue = False
        self.asked_at = 0.0
        """``time.monotonic()`` at which the task was asked to stop because it was overdue."""
        self.is_stuck = False
        """Overdue, asked to stop, and still running after the grace period."""
        self.cancel_reason: str | None = None
        """The reason of the cancel request, or None if there is none."""
        self._cancelled: Cancelled | None = None
        self.statements: Statements | None = None
        """Its SQL statements, if it has a deadline."""
        self.result: TaskResult | None = None
        """The TaskResult that the context and all signals share, once one of them has needed it."""

    def start(self) -> None:
        """Set the start time and the deadline."""
        self.started = time.monotonic()
        if (timeout := self.task.timeout) is not None:
            self.deadline = self.started + timeout.total_seconds()

    @property
    def cancelled(self) -> Cancelled:
        if self._cancelled is None:
            self._cancelled = Cancelled()
        return self._cancelled

    @property
    def started_at(self) -> datetime:
        """The start time by the store's clock."""
        return self.by_the_store(self.started)

    @property
    def deadline_at(self) -> datetime | None:
        """The deadline by the store's clock."""
        return None if self.deadline is None else self.by_the_store(self.deadline)

    def by_the_store(self, moment: float) -> datetime:
        """Convert a value of this process's monotonic clock to the store's clock."""
        # The store's clock stamped the claim, and the claim reached this process a moment later.
        return self.job.attempted_at + timedelta(seconds=moment - self.claimed_at)

    def stop(self, reason: str) -> None:
        """Ask the task to stop: set ``context.cancelled`` and cancel what it awaits; at its deadline, also its SQL."""
        self.cancelled.set(reason)
        if self.is_overdue and self.statements is not None:
            self.statements.cancel()
        if (future := self.future) is not None:
            with suppress(RuntimeError):  # the loop is closed because the process is ending
                future.get_loop().call_soon_threadsafe(future.cancel, reason)

    def was_cancelled_in_await(self, error: BaseException) -> bool:
        """Return whether a cancel request ended the task in an ``await``: the traceback then shows only that."""
        return self.cancel_reason is not None and isinstance(error.__cause__, asyncio.CancelledError)

    def interpret(self, error: BaseException) -> BaseException:
        """Return ``Cancel`` or ``TaskTimeout`` for an exception that a cancel request or the deadline caused."""
        if isinstance(error, JobSignal):
            return error
        if self.cancel_reason is not None:
            interpreted: BaseException = Cancel(self.cancel_reason)
        elif self.is_overdue or (self.deadline is not None and time.monotonic() >= self.deadline):
            interpreted = TaskTimeout(f"The task ran longer than its timeout of {self.task.timeout}.")
        else:
            return error
        interpreted.__cause__ = error
        return interpreted
