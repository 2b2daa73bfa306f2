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
        TaskTimeout,
        UnknownCron,
        UnknownTask,
        UnreadableJob,
        WorkerLost,
    )
    from djqueue.jobs.records import BulkResult
    from djqueue.tasks.backoff import Exponential, Linear
    from djqueue.tasks.results import JobView, TaskContext, TaskResult, UnknownTaskResult
    from djqueue.tasks.task import Task, task
    from djqueue.tasks.unique import Unique

__version__ = "0.1.0"

__all__ = [
    "BulkInterrupted",
    "BulkResult",
    "Cancel",
    "Cron",
    "Discard",
    "DjqueueError",
    "DuplicateJob",
    "EngineDenied",
    "EngineUnavailable",
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
    "ResultTooLarge",
    "Retry",
    "Snooze",
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
    "task",
]

_HOMES = {
    "tasks.task": ("Task", "task"),
    "jobs.records": ("BulkResult",),
    "tasks.results": ("JobView", "TaskContext", "TaskResult", "UnknownTaskResult"),
    "tasks.backoff": ("Exponential", "Linear"),
    "compat": ("TaskResultDoesNotExist",),
    "tasks.unique": ("Unique",),
    "cron.entry": ("Cron",),
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
