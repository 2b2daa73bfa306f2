"""What an exception means for the job that raised it. Pure: no clock, no store."""

from __future__ import annotations

import json
import traceback
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from djqueue.backoff import delay_seconds
from djqueue.encoding import storable
from djqueue.exceptions import Cancel, Discard, Retry, Snooze
from djqueue.records import ClaimedJob
from djqueue.states import JobState
from djqueue.tasks import Task

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000


class Outcome(NamedTuple):
    """Where a job goes after an attempt that did not simply return."""

    state: JobState
    delay: float = 0.0
    """Seconds until it is due again."""
    is_spent: bool = True
    is_error: bool = True
    """Whether the exception is recorded with the job."""


def outcome_of(error: BaseException, job: ClaimedJob, task: Task) -> Outcome:
    """Decide by the exception's type, the attempts that are left and the task's backoff."""
    match error:
        case Snooze():
            return Outcome(JobState.SCHEDULED, max(0.0, error.delay.total_seconds()), is_spent=False, is_error=False)
        case Cancel():
            return Outcome(JobState.CANCELLED)
        case Discard():
            return Outcome(JobState.DISCARDED)
    if job.attempt >= job.max_attempts:
        return Outcome(JobState.DISCARDED)
    if isinstance(error, Retry) and error.delay is not None:
        delay = max(0.0, error.delay.total_seconds())
    else:
        delay = delay_seconds(task.backoff, job.attempt, error)
    return Outcome(JobState.RETRYABLE if delay > 0 else JobState.AVAILABLE, delay)


def error_entry(error: BaseException, job: ClaimedJob, worker: UUID) -> str:
    """Describe a failed attempt as JSON text that any store takes, whatever the exception does when it is printed."""
    kind = type(error)
    return json.dumps(
        {
            "attempt": job.attempt,
            "at": datetime.now(UTC).isoformat(),
            "worker": str(worker),
            "exception": storable(f"{kind.__module__}.{kind.__qualname__}", MESSAGE_LIMIT),
            "message": storable(_message(error), MESSAGE_LIMIT),
            "traceback": storable(_traceback(error), TRACEBACK_LIMIT),
        }
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as unprintable:
        return f"<the message cannot be printed: {type(unprintable).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        # Without djqueue's own frames in front, and never with local variables: those hold arguments.
        return "".join(traceback.format_exception(error))
    except BaseException as unprintable:
        return f"<the traceback cannot be printed: {type(unprintable).__name__}>"
