"""The result of a job as django.tasks defines it, with djqueue's own data in ``job``.

======================================== ==========
job                                      result
======================================== ==========
scheduled available retryable suspended  READY
executing                                RUNNING
completed                                SUCCESSFUL
discarded cancelled                      FAILED
======================================== ==========

``id`` is the job's number as a string. ``worker_ids`` holds one id per attempt: the workers of the failed attempts, from
the job's errors, then the worker that runs the job or finished it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from asgiref.sync import sync_to_async

from djqueue import api, compat
from djqueue.exceptions import UnknownTask
from djqueue.jobs.compression import decode_arguments, readable
from djqueue.jobs.control import Controlled
from djqueue.jobs.moments import as_django
from djqueue.jobs.records import ClaimedJob, InsertedJob, Job, NewJob
from djqueue.jobs.states import LIVE_STATES, JobState

if TYPE_CHECKING:
    _AnyTask = compat.Task[..., Any]
    _Result = compat.TaskResult[..., Any]
else:
    _Result = compat.TaskResult

_decode = json.JSONDecoder().decode
"""``json.loads`` without its checks for bytes and a byte order mark: djqueue itself encoded this text."""
STATUS = {
    **dict.fromkeys(LIVE_STATES, compat.TaskResultStatus.READY),
    JobState.EXECUTING: compat.TaskResultStatus.RUNNING,
    JobState.COMPLETED: compat.TaskResultStatus.SUCCESSFUL,
    JobState.DISCARDED: compat.TaskResultStatus.FAILED,
    JobState.CANCELLED: compat.TaskResultStatus.FAILED,
}


class UnknownTaskResult(UnknownTask, compat.TaskResultDoesNotExist):
    """The job exists, but no task of its name is known in this process, so no TaskResult can be made of it.

    Also a ``TaskResultDoesNotExist``, so that code written for django.tasks handles it.
    """


class JobView(NamedTuple):
    """The data of a job that a TaskResult does not contain, as of the time when the result was made."""

    id: int
    state: JobState
    queue: str
    priority: int
    attempt: int
    """The number of the running attempt, from 1. If no attempt is running, the number of attempts so far."""
    max_attempts: int
    scheduled_at: datetime | None
    meta: dict[str, Any]

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts


@dataclass(frozen=True, kw_only=True)
class TaskResult(_Result):  # type: ignore[misc]  # the stubs miss that the base is frozen
    job: JobView = field(compare=False)
    was_duplicate: bool = field(default=False, compare=False)
    """Whether no job was stored because another job holds the unique key. This is that job's result."""

    def __post_init__(self) -> None:
        # The base class sets its default in the __init__ of a slotted dataclass, which a subclass does not inherit. It also normalises
        # the arguments, which come out of JSON here.
        object.__setattr__(self, "_return_value", None)

    @property
    def attempts(self) -> int:
        return max(self.job.attempt, len(self.worker_ids))

    def refresh(self) -> None:
        """Read the job anew."""
        fresh = self.task.get_backend().get_result(self.id)
        for name in (*compat.TASK_REFRESH_ATTRS, "job"):
            object.__setattr__(self, name, getattr(fresh, name))

    def cancel(self, reason: str = "", *, by: object = "") -> Controlled:
        """Cancel the job at once if it is waiting, or ask it to stop if it is running. See ``djqueue.api``."""
        return api.cancel(self, by=by, reason=reason)

    async def acancel(self, reason: str = "", *, by: object = "") -> Controlled:
        """See ``cancel``."""
        return await sync_to_async(self.cancel, thread_sensitive=True)(reason, by=by)

    async def arefresh(self) -> None:
        """Read the job anew."""
        await sync_to_async(self.refresh, thread_sensitive=True)()


_T = TypeVar("_T", bound="_AnyTask")


def as_stored(task: _T, job: ClaimedJob | Job, alias: str) -> _T:
    """Return the task with the values of a stored job. They are not validated, because the job's queue may have been removed."""
    changes = {
        "queue_name": job.queue,
        "priority": job.priority,
        "run_after": as_django(job.scheduled_at),
        "backend": alias,
    }
    if all(getattr(task, name) == value for name, value in changes.items()):
        return task
    copy = object.__new__(type(task))
    for each in fields(task):
        object.__setattr__(copy, each.name, changes.get(each.name, getattr(task, each.name)))
    return copy


def from_insert(new: NewJob, inserted: InsertedJob, task: _AnyTask, alias: str) -> TaskResult:
    """Return the result for ``enqueue``."""
    state = JobState(inserted.state)
    args, kwargs = decode_arguments(new.args, new.kwargs)
    return TaskResult(
        task=task,
        id=str(inserted.id),
        status=STATUS[state],
        was_duplicate=inserted.was_duplicate,
        enqueued_at=as_django(inserted.inserted_at),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
        job=JobView(
            id=inserted.id,
            state=state,
            queue=new.queue,
            priority=new.priority,
            attempt=0,
            max_attempts=new.max_attempts,
            scheduled_at=as_django(new.scheduled_at),
            meta=_decode(new.meta) if new.meta != "{}" else {},
        ),
    )


def from_claim(claimed: ClaimedJob, task: _AnyTask, alias: str, worker_id: object) -> TaskResult:
    """Return the result of a job that is about to run in this process, for its context and for signals."""
    errors = json.loads(claimed.errors)
    args, kwargs = readable(json.loads(claimed.args), json.loads(claimed.kwargs))
    return TaskResult(
        task=as_stored(task, claimed, alias),
        id=str(claimed.id),
        status=compat.TaskResultStatus.RUNNING,
        enqueued_at=as_django(claimed.inserted_at),
        # The store does not record the start of a first attempt before its outcome is stored; the claim is
        # the closest time that is known.
        started_at=as_django(claimed.started_at or claimed.attempted_at),
        last_attempted_at=as_django(claimed.attempted_at),
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=_task_errors(errors),
        worker_ids=[*_failed_workers(errors), str(worker_id)],
        job=_view(claimed, JobState.EXECUTING, json.loads(claimed.meta)),
    )


def from_job(job: Job, task: _AnyTask, alias: str) -> TaskResult:
    """Return the result of a stored job."""
    worker_ids = _failed_workers(job.errors)
    if (
        job.attempted_by is not None
        and job.attempt > len(worker_ids)
        and (job.state is JobState.EXECUTING or job.state.is_final)
    ):
        worker_ids.append(str(job.attempted_by))
    args, kwargs = readable(job.args, job.kwargs)
    result = TaskResult(
        task=as_stored(task, job, alias),
        id=str(job.id),
        status=STATUS[job.state],
        enqueued_at=as_django(job.inserted_at),
        started_at=as_django(job.started_at),
        last_attempted_at=as_django(job.attempted_at),
        finished_at=as_django(job.finished_at),
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=_task_errors(job.errors),
        worker_ids=worker_ids,
        job=_view(job, job.state, job.meta),
    )
    if job.state is JobState.COMPLETED:
        object.__setattr__(result, "_return_value", job.result)
    return result


def _view(job: ClaimedJob | Job, state: JobState, meta: dict[str, Any]) -> JobView:
    scheduled_at = as_django(job.scheduled_at)
    return JobView(job.id, state, job.queue, job.priority, job.attempt, job.max_attempts, scheduled_at, meta)


def finish(
    result: TaskResult,
    state: JobState,
    *,
    at: datetime,
    value: Any = None,
    error: BaseException | None = None,
    traceback: str = "",
) -> None:
    """Finish a running result in place, because both signals carry the same object."""
    if error is not None:
        kind = type(error)
        result.errors.append(
            compat.TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=traceback)
        )
    object.__setattr__(result, "status", STATUS[state])
    object.__setattr__(result, "finished_at", as_django(at) if state.is_final else None)
    object.__setattr__(result, "job", result.job._replace(state=state))
    if state is JobState.COMPLETED:
        object.__setattr__(result, "_return_value", value)


def _task_errors(entries: Sequence[dict[str, Any]]) -> list[compat.TaskError]:
    return [
        compat.TaskError(
            exception_class_path=str(entry.get("exception") or "builtins.Exception"),
            traceback=str(entry.get("traceback") or entry.get("message") or ""),
        )
        for entry in entries
        if "left_out" not in entry
    ]


def _failed_workers(entries: Sequence[dict[str, Any]]) -> list[str]:
    # Jobs that were cancelled or discarded through the API have an entry too, without a worker.
    return [str(worker) for entry in entries if (worker := entry.get("worker"))]
