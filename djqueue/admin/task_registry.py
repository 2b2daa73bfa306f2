"""The tasks that this process knows."""

from __future__ import annotations

from djqueue.exceptions import UnknownTask
from djqueue.tasks import registry


def task_names() -> list[str]:
    """Return the paths of the tasks of all installed apps."""
    registry.autodiscover_once()  # a web process may have imported nothing but views
    return sorted(registry.known())


def why_unknown(name: str) -> str:
    """Return why there is no such task; empty if there is one."""
    try:
        registry.find(name)
    except UnknownTask as error:
        return str(error)
    return ""
