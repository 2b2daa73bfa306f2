"""The default backend on each kind of store in turn, and what is in it, asked of its engine.

The fixture has to be imported where it is used; a test that has workers see what it stores commits (``committed``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings

from djqueue import stores as entries
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, ClaimedJob, Job, WorkerInfo
from djqueue.jobs.states import LIVE_STATES, JobState
from djqueue.tasks.new_job import new_job
from djqueue.tasks.task import Task
from tests import settings as test_settings
from tests import stores
from tests.roles import Roles

WORKER = UUID("11111111-1111-1111-1111-111111111111")
committed = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["postgres", "valkey"])
def default_store(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the default backend on a store, here and in the processes that a test starts.

    What is on Redis may not even ask the database (``tests/stores.py`` sees to it).
    """
    if request.param in stores.REDIS:
        stores.empty(stores.valkey())
        monkeypatch.setenv("DJQUEUE_STORE", "redis")
        settings.TASKS = test_settings.tasks("redis")
    return str(request.param)


def backend() -> entries.Store:
    return entries.store("default")


def entry(**changes: Any) -> dict[str, dict[str, Any]]:
    """TASKS with another default backend on the same store."""
    default: Any = settings.TASKS["default"]
    options = {**default["OPTIONS"], **changes.pop("OPTIONS", {})}
    return {"default": {**default, "OPTIONS": options, **changes}}


def stored() -> list[Job]:
    """All jobs, in the order of their ids."""
    engine = backend().engine
    ids = engine.find(JobFilter(), last=engine.count(JobFilter()).last)
    return [job for id in ids if (job := engine.get(id)) is not None]


def live() -> list[Job]:
    return [job for job in stored() if job.state in LIVE_STATES]


def the_job() -> Job:
    [job] = stored()
    return job


def insert(task: Task, *args: Any, now: datetime) -> str:
    """Enqueue at another time than now; return the id."""
    [inserted] = backend().engine.insert([new_job(task, args, {}, backend().settings)], now=now)
    return str(inserted.id)


def register(id: UUID = WORKER, name: str = "w", **queues: int | None) -> None:
    with Roles(backend().engine) as engine:
        engine.register(
            [WorkerInfo(id=id, name=name, hostname="h", pid=1, queues=queues or {"default": None}, concurrency=1)]
        )


def fetch(queue: str = "default") -> ClaimedJob:
    register(**{queue: None})
    with Roles(backend().engine) as engine:
        [claimed] = engine.fetch(queue, 1, WORKER)
    return claimed


def ack(claimed: ClaimedJob, state: JobState, **outcome: Any) -> None:
    with Roles(backend().engine) as engine:
        assert engine.ack([Ack(claimed.id, claimed.claim, state, **outcome)]).accepted
