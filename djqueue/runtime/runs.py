"""One execution while it runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from djqueue.exceptions import Cancel, JobSignal, TaskTimeout
from djqueue.runtime.django_connections import Statements
from djqueue.runtime.lanes import Execution
from djqueue.tasks.cancellation import Cancelled
from djqueue.tasks.results import TaskResult


class Failure(NamedTuple):
    """What a run raised, as it is judged, and its traceback as text: made once, for the store, the log and the signals."""

    error: BaseException
    traceback: str


class Run:
    """What the timekeeper, a cancel request and the executor know of a running job.

    A plain object with slots: there is one per job on the hot path. ``cancelled`` is made when somebody needs it.
    """

    __slots__ = (
        "_cancelled",
        "asked_at",
        "cancel_reason",
        "deadline",
        "execution",
        "future",
        "is_overdue",
        "is_stuck",
        "result",
        "started",
        "statements",
    )

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.started = time.monotonic()
        timeout = execution.task.timeout
        self.deadline: float | None = None if timeout is None else self.started + timeout.total_seconds()
        self.future: asyncio.Task[None] | None = None
        self.is_overdue = False
        self.asked_at = 0.0
        """When it was asked to stop because it was overdue."""
        self.is_stuck = False
        """Overdue, asked to stop, and still running after the grace."""
        self.cancel_reason: str | None = None
        """Why somebody cancelled the job; None: nobody did."""
        self._cancelled: Cancelled | None = None
        self.statements: Statements | None = None
        """Its SQL statements, if it has a deadline."""
        self.result: TaskResult | None = None
        """What the context and the signals carry, once one of them has asked for it: one object for all."""

    @property
    def cancelled(self) -> Cancelled:
        if self._cancelled is None:
            self._cancelled = Cancelled()
        return self._cancelled

    @property
    def started_at(self) -> datetime:
        """When it began, by the store's clock."""
        return self.by_the_store(self.started)

    @property
    def deadline_at(self) -> datetime | None:
        """The deadline, by the store's clock."""
        return None if self.deadline is None else self.by_the_store(self.deadline)

    def by_the_store(self, moment: float) -> datetime:
        """Translate a moment of this process's monotonic clock."""
        # The claim was made by the store's clock, and a moment later it was here.
        return self.execution.job.attempted_at + timedelta(seconds=moment - self.execution.claimed)

    def stop(self, reason: str) -> None:
        """Ask the task to stop: set ``context.cancelled`` and cancel what it awaits; at its deadline, its SQL too."""
        self.cancelled.set(reason)
        if self.is_overdue and self.statements is not None:
            self.statements.end()
        if (future := self.future) is not None:
            with suppress(RuntimeError):  # the loop is closed: its process leaves
                future.get_loop().call_soon_threadsafe(future.cancel, reason)

    def was_cancelled_where_it_waited(self, judged: BaseException) -> bool:
        """Whether a cancel request ended the task in an ``await``: then a traceback shows nothing but that."""
        return self.cancel_reason is not None and isinstance(judged.__cause__, asyncio.CancelledError)

    def judge(self, error: BaseException) -> BaseException:
        """Return what the error of a run that was asked to stop amounts to."""
        if isinstance(error, JobSignal):
            return error
        if self.cancel_reason is not None:
            judged: BaseException = Cancel(self.cancel_reason)
        elif self.is_overdue or (self.deadline is not None and time.monotonic() >= self.deadline):
            judged = TaskTimeout(f"The task ran longer than its timeout of {self.execution.task.timeout}.")
        else:
            return error
        judged.__cause__ = error
        return judged
