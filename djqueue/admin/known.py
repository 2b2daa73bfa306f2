"""The tasks that this process knows."""

from __future__ import annotations

from functools import cache

from djqueue.exceptions import UnknownTask
from djqueue.tasks import registry


def known_tasks() -> list[str]:
    """Name the tasks of all installed apps."""
    _discover()
    return sorted(registry.known())


def why_unknown(name: str) -> str:
    """Say why there is no such task; empty if there is one."""
    try:
        registry.find(name)
    except UnknownTask as error:
        return str(error)
    return ""


@cache
def _discover() -> None:
    # A web process may have imported nothing but views. Once: a module that cannot be imported is logged each time.
    registry.autodiscover()
