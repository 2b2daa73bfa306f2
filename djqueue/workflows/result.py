"""``Result``: an argument whose value is what another job returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]
"""Where a value stands in a job's arguments: ``("args", 0)`` or ``("kwargs", "files", 2, "key")``."""


@dataclass(frozen=True, slots=True)
class Result:
    """In the arguments of a workflow's job, also inside lists and dicts: the result of the job with this name.

    The job waits for it, as if it was among ``deps``. A job that exists already is named by its ``TaskResult`` or its id.
    """

    of: Any


def replace_results(value: Any, path: Path, found: Callable[[Path, Result], None]) -> Any:
    """Return arguments with None in the place of each ``Result``, and report each to ``found``."""
    if isinstance(value, Result):
        found(path, value)
        return None
    if isinstance(value, Mapping):
        return {key: replace_results(item, (*path, key), found) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_results(item, (*path, place), found) for place, item in enumerate(value)]
    return value
