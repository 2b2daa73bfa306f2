"""What an exception means for the job that raised it. Pure: no clock, no store."""

from __future__ import annotations

import json
import time
from typing import NamedTuple
from uuid import UUID

from djqueue import hooks
from djqueue.exceptions import Cancel, Discard, Retry, Snooze, TaskTimeout, WorkerLost
from djqueue.jobs.encoding import encode_error, storable
from djqueue.jobs.records import Ack, ClaimedJob, TakenJob
from djqueue.jobs.states import JobState
from djqueue.tasks.backoff import delay_seconds
from djqueue.tasks.task import Task

_INTERRUPTED = (
    '{"exception": "djqueue.exceptions.WorkerLost", "message": "Interrupted; it runs at most once.", "traceback": ""}'
)

FREE_INTERRUPTIONS = 3
"""So often a job that a stop interrupts gets its attempt back; ``ack_requeue.sql`` and ``ack.lua`` count the same way."""
PARK_SECONDS = 30.0
"""How long a job of an unknown task waits before a worker looks at it again."""


class Outcome(NamedTuple):
    """Where a job goes after an attempt that did not simply return."""

    state: JobState
    delay: float = 0.0
    """Seconds until it is due again."""
    is_spent: bool = True
    is_error: bool = True
    """Whether the exception is recorded with the job."""
    problem: BaseException | None = None
    """What the project's rules raised when they were asked; the default rules decided."""


def outcome_of(error: BaseException, job: ClaimedJob, task: Task) -> Outcome:
    """Decide by the exception's type, the attempts that are left and the task's backoff. Never fails."""
    try:
        outcome = _outcome_of(error, job, task)
    except BaseException as problem:  # an exception without its delay, a class in retry_on that cannot be asked
        hooks.report(problem, "The rules of %s failed for an exception of job %s.", job.task, job.id)
        outcome = _by_default(job, problem)
    # A job that may run once has run.
    return (
        Outcome(JobState.DISCARDED, problem=outcome.problem) if job.is_taken and not outcome.state.is_final else outcome
    )


def _by_default(job: ClaimedJob, problem: BaseException) -> Outcome:
    if job.attempt >= job.max_attempts:
        return Outcome(JobState.DISCARDED, problem=problem)
    return Outcome(JobState.RETRYABLE, delay_seconds(None, job.attempt), problem=problem)


def broken(job: ClaimedJob, worker: UUID, problem: BaseException, *, started: float | None) -> Ack:
    """Return the outcome of an attempt that something around the task itself broke, before or after its function. Never fails."""
    entry = encode_error(problem, attempt=job.attempt, worker=worker)
    outcome = _by_default(job, problem)
    ack = Ack(job.id, job.claim, outcome.state, started, time.monotonic(), None, entry, outcome.delay)
    return for_job(ack, job)


def interrupted(job: ClaimedJob, worker: UUID, *, started: float) -> Ack:
    """Return the ack of an attempt that a stop of its worker cuts off: back with its attempt, unless that happened too often.

    From the fourth time on the store does not give the attempt back, and when the last one goes that way the job ends, or
    one that never ends before its worker does would start for ever.
    """
    times = int(json.loads(job.meta).get("interrupted", 0))
    if job.attempt < job.max_attempts or times < FREE_INTERRUPTIONS:
        return Ack(job.id, job.claim, JobState.AVAILABLE, started, is_spent=False)
    error = WorkerLost(f"A stop of its worker interrupted it for the {times + 1}th time, in its last attempt.")
    entry = encode_error(error, attempt=job.attempt, worker=worker)
    return Ack(job.id, job.claim, JobState.DISCARDED, started, time.monotonic(), None, entry)


def for_job(ack: Ack, job: ClaimedJob) -> Ack:
    """Return the ack as the store needs it for a job that it has no more: with the job, and never to run again."""
    if not isinstance(job, TakenJob):
        return ack
    if ack.started is not None and not ack.state.is_final:
        ack = ack._replace(state=JobState.DISCARDED, finished=time.monotonic(), error=ack.error or _INTERRUPTED)
    return ack._replace(taken=job)


def parked(job: ClaimedJob, reason: object) -> Ack:
    """Return the ack that puts a job aside which no worker here can run: with a visible reason and its attempt.

    It is looked at again after a while; others wait behind nothing.
    """
    note = json.dumps({"parked": storable(reason, 500)}, ensure_ascii=False)
    return Ack(job.id, job.claim, JobState.SCHEDULED, delay=PARK_SECONDS, is_spent=False, note=note)


def _outcome_of(error: BaseException, job: ClaimedJob, task: Task) -> Outcome:
    match error:
        case Snooze():
            return Outcome(JobState.SCHEDULED, delay_seconds(error.delay, job.attempt), is_spent=False, is_error=False)
        case Cancel():
            return Outcome(JobState.CANCELLED)
        case Discard():
            return Outcome(JobState.DISCARDED)
    if not isinstance(error, (Retry, TaskTimeout)) and not _is_retryable(error, task):
        return Outcome(JobState.DISCARDED)
    if job.attempt >= job.max_attempts:
        return Outcome(JobState.DISCARDED)
    if isinstance(error, Retry) and error.delay is not None:
        delay = delay_seconds(error.delay, job.attempt, error)
    else:
        delay = delay_seconds(task.backoff, job.attempt, error)
    return Outcome(JobState.RETRYABLE if delay > 0 else JobState.AVAILABLE, delay)


def _is_retryable(error: BaseException, task: Task) -> bool:
    if isinstance(error, task.discard_on):
        return False
    # SystemExit, CancelledError and the like say nothing about the task's work: they are retried unless it rules.
    return isinstance(error, task.retry_on) or (task.retry_on == (Exception,) and not isinstance(error, Exception))
