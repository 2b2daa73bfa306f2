"""Decide where a job goes after an attempt. Nothing here reads the store."""

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
    '{"exception": "djqueue.exceptions.WorkerLost", "message": "The job was interrupted, and its queue delivers at most once.",'
    ' "traceback": ""}'
)

FREE_INTERRUPTIONS = 3
"""How often a job that a stop interrupts gets its attempt back; ``ack_requeue.sql`` and ``ack.lua`` use the same number."""
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
    """What the project's rules raised; the default rules decided instead."""


def ack_of(
    job: ClaimedJob,
    state: JobState,
    started: float | None = None,
    finished: float = 0.0,
    result: str | None = None,
    error: str | None = None,
    *,
    delay: float = 0.0,
    is_spent: bool = True,
    note: str | None = None,
) -> Ack:
    """Build the ack of a job. Every ack of a worker is built here.

    The store no longer has a job of an at-most-once queue, so its ack carries the job. Once such a job has started it
    never runs again: any other outcome than a final one becomes "discarded".
    """
    if not isinstance(job, TakenJob):
        id, claim, flow_id, is_awaited = job.id, job.claim, job.flow_id, job.is_awaited
        return Ack(id, claim, state, started, finished, result, error, delay, is_spent, note, None, flow_id, is_awaited)
    if started is not None and not state.is_final:
        state, finished, error = JobState.DISCARDED, time.monotonic(), error or _INTERRUPTED
    return Ack(job.id, job.claim, state, started, finished, result, error, delay, is_spent, note, job)


def outcome_of(error: BaseException, job: ClaimedJob, task: Task) -> Outcome:
    """Decide by the exception's type, the attempts that are left and the task's backoff. Never raises."""
    try:
        outcome = _outcome_of(error, job, task)
    except BaseException as problem:  # an exception without its delay, a class in retry_on that cannot be asked
        hooks.report(
            problem, "Unexpected error in the retry rules of task %s, for an exception of job %s.", job.task, job.id
        )
        outcome = _by_default(job, problem)
    if job.is_taken and not outcome.state.is_final:
        return Outcome(JobState.DISCARDED, problem=outcome.problem)  # at most once, and this was the once
    return outcome


def _by_default(job: ClaimedJob, problem: BaseException) -> Outcome:
    if job.attempt >= job.max_attempts:
        return Outcome(JobState.DISCARDED, problem=problem)
    return Outcome(JobState.RETRYABLE, delay_seconds(None, job.attempt), problem=problem)


def broken(job: ClaimedJob, worker: UUID, problem: BaseException, *, started: float | None) -> Ack:
    """Return the ack of an attempt that failed outside the task's own function. Never raises."""
    entry = encode_error(problem, attempt=job.attempt, worker=worker)
    outcome = _by_default(job, problem)
    return ack_of(job, outcome.state, started, time.monotonic(), None, entry, delay=outcome.delay)


def handed_back(job: ClaimedJob) -> Ack:
    """Return the ack of a claimed job that has not started: it becomes available again with its attempt."""
    return ack_of(job, JobState.AVAILABLE, is_spent=False)


def interrupted(job: ClaimedJob, worker: UUID, *, started: float) -> Ack:
    """Return the ack of an attempt that a stop of its worker cuts off; it gets its attempt back three times at most.

    From the fourth time on the store does not give the attempt back, and when the last attempt goes that way the job
    is discarded. Otherwise a job that never ends before its worker does would start forever.
    """
    times = int(json.loads(job.meta).get("interrupted", 0))
    if job.attempt < job.max_attempts or times < FREE_INTERRUPTIONS:
        return ack_of(job, JobState.AVAILABLE, started, is_spent=False)
    error = WorkerLost(
        f"Its worker was stopped while the job ran, {times + 1} times so far. This was its last attempt."
    )
    entry = encode_error(error, attempt=job.attempt, worker=worker)
    return ack_of(job, JobState.DISCARDED, started, time.monotonic(), None, entry)


def parked(job: ClaimedJob, reason: object) -> Ack:
    """Return the ack that sets aside a job which no worker here can run: with a visible reason and its attempt.

    A worker looks at it again after a while; the jobs behind it do not wait.
    """
    note = json.dumps({"parked": storable(reason, 500)}, ensure_ascii=False)
    return ack_of(job, JobState.SCHEDULED, delay=PARK_SECONDS, is_spent=False, note=note)


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
    # SystemExit, CancelledError and the like say nothing about the task's work: they are retried unless the task has rules.
    return isinstance(error, task.retry_on) or (task.retry_on == (Exception,) and not isinstance(error, Exception))
