"""What djqueue itself says about the jobs of a store, where the layout of the store is nobody else's business."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import Any


def is_there(path: str) -> bool:
    """Say whether djqueue has this name at this commit: results are compared over time."""
    _set_up()
    module, _, name = path.rpartition(".")
    return hasattr(import_module(module), name)


def unfinished(url: str) -> int:
    return sum(sum(counts.states.values()) for counts in _engine(url).counts())


def finished(url: str) -> int:
    from djqueue.jobs.lists import JobFilter
    from djqueue.jobs.states import JobState

    return int(_engine(url).count(JobFilter(states=(JobState.COMPLETED,))).count)


@lru_cache(maxsize=1)
def _engine(url: str) -> Any:
    _set_up()
    from djqueue import stores

    return stores.RedisStore("default", {"OPTIONS": {"url": url}}).engine


def _set_up() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.settings")
    os.environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1/none")
    django.setup()
