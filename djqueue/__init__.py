"""Background jobs for Django that live in PostgreSQL.

The public names are imported when they are first used, so that ``from djqueue import task`` works anywhere,
and importing the package alone loads nothing of Django.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from djqueue.compat import TaskResultDoesNotExist
    from djqueue.cron.entry import Cron
    from djqueue.exceptions import (
        BulkInterrupted,
        Cancel,
        DependencyFailed,
        Discard,
        DjqueueError,
        DuplicateJob,
        EngineDenied,
        EngineUnavailable,
        ForeignBackend,
        InvalidArguments,
        InvalidCron,
        InvalidJob,
        InvalidOptions,
        InvalidResult,
        InvalidWorkflow,
        JobTooLarge,
        ResultTooLarge,
        Retry,
        Snooze,
        StaleClaim,
        TaskTimeout,
        UnknownCron,
        UnknownTask,
        UnreadableJob,
        WorkerLost,
    )
    from djqueue.jobs.records import BulkResult
    from djqueue.tasks.backoff import Exponential, Linear
    from djqueue.tasks.context import TaskContext
    from djqueue.tasks.results import JobView, TaskResult, UnknownTaskResult
    from djqueue.tasks.task import Task, task
    from djqueue.tasks.unique import Unique
    from djqueue.workflows.batch import Batch, EnqueuedBatch
    from djqueue.workflows.canvas import Signature, chain, group
    from djqueue.workflows.handle import EnqueuedWorkflow
    from djqueue.workflows.result import Result
    from djqueue.workflows.workflow import Workflow

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BulkInterrupted",
    "BulkResult",
    "Cancel",
    "Cron",
    "DependencyFailed",
    "Discard",
    "DjqueueError",
    "DuplicateJob",
    "EngineDenied",
    "EngineUnavailable",
    "EnqueuedBatch",
    "EnqueuedWorkflow",
    "Exponential",
    "ForeignBackend",
    "InvalidArguments",
    "InvalidCron",
    "InvalidJob",
    "InvalidOptions",
    "InvalidResult",
    "InvalidWorkflow",
    "JobTooLarge",
    "JobView",
    "Linear",
    "Result",
    "ResultTooLarge",
    "Retry",
    "Signature",
    "Snooze",
    "StaleClaim",
    "Task",
    "TaskContext",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskTimeout",
    "Unique",
    "UnknownCron",
    "UnknownTask",
    "UnknownTaskResult",
    "UnreadableJob",
    "WorkerLost",
    "Workflow",
    "chain",
    "group",
    "task",
]

_HOMES = {
    "tasks.task": ("Task", "task"),
    "jobs.records": ("BulkResult",),
    "tasks.results": ("JobView", "TaskResult", "UnknownTaskResult"),
    "tasks.context": ("TaskContext",),
    "tasks.backoff": ("Exponential", "Linear"),
    "compat": ("TaskResultDoesNotExist",),
    "tasks.unique": ("Unique",),
    "cron.entry": ("Cron",),
    "workflows.batch": ("Batch", "EnqueuedBatch"),
    "workflows.canvas": ("Signature", "chain", "group"),
    "workflows.handle": ("EnqueuedWorkflow",),
    "workflows.result": ("Result",),
    "workflows.workflow": ("Workflow",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"djqueue.{_HOME_OF.get(name, 'exceptions')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
