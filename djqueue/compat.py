"""The tasks framework, imported in one place: ``django.tasks`` on Django 6, ``django-tasks`` on 5.2.

The rest of djqueue imports from here and does not know which of the two it got. On Django 6 the package is
never used, even where it is installed: its classes and signals would be a second set that nothing of
Django's listens to.

Its ``signals`` module is imported too, or a changed ``TASKS`` setting would not reset the backends on 5.2.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import django
from django.dispatch import Signal

from djqueue import extras

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import default_task_backend, task_backends
    from django.tasks import signals as _signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        TASK_MAX_PRIORITY,
        TASK_MIN_PRIORITY,
        TASK_REFRESH_ATTRS,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskException,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.tasks.signals import logger as task_logger
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    FRAMEWORK = "django.tasks"
else:
    try:
        import django_tasks  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"djqueue on Django {django.get_version()} needs the package django-tasks, "
            f"which Django 6 has built in. Install it with: {extras.install('django52')}"
        ) from error
    from django_tasks import default_task_backend, task_backends
    from django_tasks import signals as _signals
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        TASK_MAX_PRIORITY,
        TASK_MIN_PRIORITY,
        TASK_REFRESH_ATTRS,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskException, TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import logger as task_logger
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

    FRAMEWORK = "django_tasks"

# By their keys among a signal's receivers. They can be disconnected, so that to count the receivers says nothing.
_FRAMEWORK_RECEIVERS = frozenset(
    id(value) for name, value in vars(_signals).items() if name.startswith("log_task_") and callable(value)
)

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "DEFAULT_TASK_PRIORITY",
    "DEFAULT_TASK_QUEUE_NAME",
    "FRAMEWORK",
    "TASK_MAX_PRIORITY",
    "TASK_MIN_PRIORITY",
    "TASK_REFRESH_ATTRS",
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskException",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "default_task_backend",
    "has_listeners",
    "is_heard",
    "is_logged",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_logger",
    "task_started",
]


def has_listeners(signal: Signal) -> bool:
    """Say whether anybody but the framework itself is connected to one of its signals."""
    # Of the framework's own there is one at most. Asked twice for every job, so without a loop.
    receivers = signal.receivers
    return len(receivers) > 1 or (len(receivers) == 1 and receivers[0][0][0] not in _FRAMEWORK_RECEIVERS)


def is_heard(signal: Signal, level: int = logging.DEBUG) -> bool:
    """Say whether sending a signal of the framework would do anything.

    The framework itself listens to each of its signals, to write a log line of this level. Where nobody
    else does and the line would not be written, a job does without the TaskResult that the signal carries.
    """
    return has_listeners(signal) or is_logged(signal, level)


def is_logged(signal: Signal, level: int) -> bool:
    """Say whether the framework would write its own line of this level about a signal."""
    return bool(signal.receivers) and _is_written(task_logger, level)


def _is_written(logger: logging.Logger, level: int) -> bool:
    """Say whether any handler would take a line of this level.

    ``isEnabledFor`` is not enough: Django's default is a logger at INFO whose only handler drops all without DEBUG.
    """
    if not logger.isEnabledFor(level):
        return False
    record = logger.makeRecord(logger.name, level, __file__, 0, "", (), None)
    handlers: list[logging.Handler] = []
    current: logging.Logger | None = logger
    while current is not None:
        handlers += current.handlers
        current = current.parent if current.propagate else None
    if not handlers and logging.lastResort is not None:
        handlers = [logging.lastResort]
    return any(level >= handler.level and handler.filter(record) for handler in handlers)
