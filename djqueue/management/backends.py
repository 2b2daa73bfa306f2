"""Find the backend that a command is about, or say in a sentence why it cannot be used."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from djqueue.compat import task_backends
from djqueue.exceptions import InvalidOptions


def backend_of(alias: str) -> Any:
    """Return the backend of an entry of TASKS."""
    try:
        backend: Any = task_backends[alias]
    except Exception as error:
        raise CommandError(f"There is no usable backend {alias!r} in TASKS: {error}") from error
    if not hasattr(type(backend), "engine"):
        raise CommandError(
            f"The backend {alias!r} in TASKS is {type(backend).__name__}, which keeps no jobs of djqueue."
            " Use djqueue.backends.PostgresBackend."
        )
    try:
        backend.settings  # noqa: B018  parses the options
    except InvalidOptions as error:
        raise CommandError(f"TASKS[{alias!r}]['OPTIONS']: {error}") from error
    return backend
