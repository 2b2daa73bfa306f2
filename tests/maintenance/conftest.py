from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from djqueue.engines.protocol import Engine
from djqueue.maintenance.scheduler import Scheduler
from tests.engines.conftest import (
    cluster,
    engine,
    listener,
    me,
    open_listener,
    open_worker,
    postgres,
    redis7,
    register,
    valkey,
    worker,
)

__all__ = [
    "cluster",
    "engine",
    "listener",
    "me",
    "open_listener",
    "open_worker",
    "postgres",
    "redis7",
    "register",
    "valkey",
    "worker",
]


TASKS_STORE = "postgresql:default"
"""Where the tasks of the tests keep their jobs, as far as the schedulers here know."""


@pytest.fixture
def open_scheduler(engine: Engine) -> Iterator[Callable[[], Scheduler]]:
    """Open schedulers; ``read_code`` False: as one that has read the code already."""
    with ExitStack() as stack:

        def open_one(*, read_code: bool = False) -> Scheduler:
            scheduler = Scheduler(stack.enter_context(engine.open_cron()), store=TASKS_STORE)
            scheduler._is_synchronised = not read_code
            return scheduler

        yield open_one


@pytest.fixture
def scheduler(open_scheduler: Callable[[], Scheduler]) -> Scheduler:
    return open_scheduler()
