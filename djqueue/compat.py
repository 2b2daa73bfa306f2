"""The tasks framework, imported in one place: ``django.tasks`` on Django 6, ``django-tasks`` on 5.2.

The rest of djqueue imports the framework from here. On Django 6 the package is never used, even if it is installed: its
classes and signals would be a second set that Django does not use.

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

# The keys of the framework's own receivers. They can be disconnected, so the number of receivers is not enough.
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
    """Return whether a signal of the framework has receivers other than the framework's own."""
    # The framework has at most one receiver per signal. This runs twice for every job, so it has no loop.
    receivers = signal.receivers
    return len(receivers) > 1 or (len(receivers) == 1 and receivers[0][0][0] not in _FRAMEWORK_RECEIVERS)


def is_heard(signal: Signal, level: int = logging.DEBUG) -> bool:
    """Return whether sending a signal of the framework would have an effect.

    The framework's own receiver of each signal writes a log record of this level. If there is no other receiver and the
    record would be dropped, no TaskResult has to be made for the signal.
    """
    return has_listeners(signal) or is_logged(signal, level)


def is_logged(signal: Signal, level: int) -> bool:
    """Return whether the framework's own log record of this level would be written for a signal."""
    return bool(signal.receivers) and _is_written(task_logger, level)


def _is_written(logger: logging.Logger, level: int) -> bool:
    """Return whether any handler would accept a record of this level.

    ``isEnabledFor`` is not enough: by default, Django's logger has level INFO, and its only handler drops records unless
    DEBUG is set.
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
