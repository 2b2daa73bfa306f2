from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from djqueue.engines.postgres import PostgresEngine
from djqueue.maintenance.scheduler import Scheduler
from tests.engines.conftest import (
    engine,
    listener,
    me,
    open_listener,
    open_worker,
    postgres,
    register,
    worker,
)

__all__ = ["engine", "listener", "me", "open_listener", "open_worker", "postgres", "register", "worker"]


@pytest.fixture
def open_scheduler(postgres: PostgresEngine) -> Iterator[Callable[[], Scheduler]]:
    """Open schedulers; ``read_code`` False: as one that has read the code already."""
    with ExitStack() as stack:

        def open_one(*, read_code: bool = False) -> Scheduler:
            scheduler = Scheduler(stack.enter_context(postgres.open_cron()), store=postgres.store)
            scheduler._is_synchronised = not read_code
            return scheduler

        yield open_one


@pytest.fixture
def scheduler(open_scheduler: Callable[[], Scheduler]) -> Scheduler:
    return open_scheduler()
