"""Find the backend that a command is to work on."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from djqueue.compat import task_backends
from djqueue.exceptions import InvalidOptions


def find_backend(alias: str) -> Any:
    """Return the backend of this alias; raise ``CommandError`` if it is none of djqueue's or its options are wrong."""
    try:
        backend: Any = task_backends[alias]
    except Exception as error:
        raise CommandError(f"There is no usable backend {alias!r} in TASKS: {error}") from error
    if not hasattr(backend, "engine"):
        raise CommandError(
            f"The backend {alias!r} in TASKS is {type(backend).__name__}, which needs no worker. Use djqueue.backends.PostgresBackend."
        )
    try:
        backend.settings  # noqa: B018  parses the options
    except InvalidOptions as error:
        raise CommandError(f"TASKS[{alias!r}]['OPTIONS']: {error}") from error
    return backend
