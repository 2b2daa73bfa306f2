"""What a producer does when the store does not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.fetcher import PostgresFetcher
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import ClaimedJob, WorkerInfo
from djqueue.models import Job
from djqueue.runtime import producer
from djqueue.runtime.acker import Acker
from djqueue.runtime.cancels import Canceller
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.execution import Execution
from djqueue.runtime.producer import Producer
from tests.ledger import tasks
from tests.roles import Roles
from tests.runtime.held_lane import HeldLane, begin_first

pytestmark = pytest.mark.django_db(transaction=True)


class Unsteady(PostgresFetcher):
    """Claims, and loses the answer, as often as it is told."""

    losses = 0

    def fetch(self, queue: str, limit: int, worker: UUID, **options: Any) -> list[ClaimedJob]:
        jobs = super().fetch(queue, limit, worker, **options)
        if self.losses:
            self.losses -= 1
            raise EngineUnavailable("the connection was lost")
        return jobs


class Bench:
    """A producer with one lane of three slots, whose jobs start and do not end."""

    def __init__(self) -> None:
        self.worker = uuid4()
        self.started: list[Execution] = []
        store = PostgresEngine("default")
        self.engine = Unsteady("default")
        with Roles(store) as roles:
            roles.register([WorkerInfo(id=self.worker, name="test", hostname="here", pid=1, queues={}, concurrency=3)])
        self.claims = ClaimBlock.create()
        self.claims.record_beat()
        self.acker = Acker(Roles(store), self.claims)
        lane = HeldLane(["default"], 3, begin_first(self.started), _never)
        self.producer = Producer(
            self.worker,
            self.engine,
            self.engine.open_listener(),
            [lane],
            self.acker,
            self.claims,
            Canceller(self.engine, {}),
            poll_interval_seconds=0.05,
        )

    def close(self) -> None:
        self.producer.on_stop()
        self.acker.on_stop()
        self.claims.close()


def _never(executions: Sequence[Any]) -> None:
    raise AssertionError("no async job here")


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_job_whose_claim_was_stored_and_never_heard_of_runs(bench: Bench) -> None:
    held = tasks.noop.enqueue()
    bench.producer.run_once()
    lost = tasks.noop.enqueue()
    bench.engine.losses = 1

    with pytest.raises(EngineUnavailable):
        bench.producer.run_once()
    assert Job.objects.get(pk=lost.id).state == "executing"
    bench.producer.run_once()

    assert [(e.job.id, e.job.attempt) for e in bench.started] == [(int(held.id), 1), (int(lost.id), 1)]
    assert bench.claims.claims() == {int(held.id): 1, int(lost.id): 2}


def test_a_claim_that_commits_after_the_first_look_is_found_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "DOUBT_SECONDS", (0.0,))
    looks = 0
    reclaim = bench.engine.reclaim

    def count(*args: Any, **kwargs: Any) -> Any:
        nonlocal looks
        looks += 1
        return reclaim(*args, **kwargs)

    monkeypatch.setattr(bench.engine, "reclaim", count)
    bench.engine.losses = 1

    with pytest.raises(EngineUnavailable):
        bench.producer.run_once()
    assert bench.producer.is_in_doubt
    bench.producer.run_once()

    assert looks == 2
    assert not bench.producer.is_in_doubt


def test_a_worker_that_leaves_looks_once_more(bench: Bench) -> None:
    lost = tasks.noop.enqueue()
    bench.engine.losses = 1
    with pytest.raises(EngineUnavailable):
        bench.producer.run_once()

    bench.producer.on_stop()

    job = Job.objects.get(pk=lost.id)
    assert (job.state, job.attempt) == ("available", 0)
    assert not bench.producer.is_in_doubt
