"""A drain ends when the store has nothing left to fetch, and not when a fetch has brought nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction

from djqueue import stores as entries
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import Ack, WorkerInfo
from djqueue.jobs.states import JobState
from djqueue.models import Job
from djqueue.runtime.acker import Acker
from djqueue.runtime.cancels import Canceller
from djqueue.runtime.children import Child
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.execution import Execution
from djqueue.runtime.producer import Producer
from djqueue.runtime.specs import LaneSpec, SupervisorSpec
from djqueue.runtime.supervisor import Supervisor
from djqueue.runtime.worker import END_DONE, END_REPLACE
from tests.backlog import engine, states, stored
from tests.ledger import tasks
from tests.processes import worker
from tests.roles import Roles
from tests.runtime.held_lane import HeldLane, begin_first

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


class Bench:
    """The producer of a draining worker with one slot, whose jobs start and end when the test says so."""

    def __init__(self) -> None:
        self.worker = uuid4()
        self.started: list[Execution] = []
        self.ends: list[bool] = []
        store = engine()
        self.engine = Roles(store)
        info = WorkerInfo(id=self.worker, name="test", hostname="here", pid=1, queues={}, concurrency=1)
        self.engine.register([info])
        self.claims = ClaimBlock.create()
        self.claims.record_beat()
        self.acker = Acker(Roles(store), self.claims)
        self.lane = HeldLane(["default"], 1, begin_first(self.started), self._never)
        self.producer = Producer(
            self.worker,
            self.engine,
            self.engine.open_listener(),
            [self.lane],
            self.acker,
            self.claims,
            Canceller(self.engine, {}),
            poll_interval_seconds=0.01,
            drain=self.engine.maintainer,
            on_finished=lambda *, is_drained: self.ends.append(is_drained),
        )

    def _never(self, *args: Any) -> None:
        raise AssertionError("no async job here")

    def store_outcome(self) -> None:
        """Store that the job which began last is completed. It has its slot still."""
        job = self.started[-1].job
        self.acker.put(Ack(job.id, job.claim, JobState.COMPLETED), self.started[-1].claim_slot)
        self.acker.run_once()

    def free_slot(self) -> None:
        with self.lane._lock:
            self.lane._finish(self.started[-1], 0.1)

    def close(self) -> None:
        self.producer.on_stop()
        self.acker.on_stop()
        self.claims.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_drain_ends_when_nothing_is_left(bench: Bench) -> None:
    tasks.noop.enqueue()
    bench.producer.run_once()
    assert (len(bench.started), bench.ends) == (1, [])
    bench.store_outcome()
    bench.free_slot()

    bench.producer.run_once()

    assert bench.ends == [True]


def test_a_drain_goes_on_while_the_slot_of_a_stored_outcome_is_not_free_yet(bench: Bench) -> None:
    tasks.noop.enqueue_many([((), {})] * 2)
    bench.producer.run_once()
    bench.store_outcome()
    assert bench.claims.held == 0

    bench.producer.run_once()
    assert bench.ends == []
    bench.free_slot()
    bench.producer.run_once()

    assert (len(bench.started), bench.ends) == (2, [])


def test_a_drain_goes_on_for_a_dead_worker_to_which_the_store_gives_nothing(bench: Bench) -> None:
    tasks.noop.enqueue()
    bench.engine.bury({bench.worker: None})

    bench.producer.run_once()

    assert (bench.started, bench.ends) == ([], [])


def test_a_drain_is_not_over_because_a_worker_that_has_to_stop_fetches_nothing(bench: Bench) -> None:
    tasks.noop.enqueue()
    bench.producer.stop()

    bench.producer.run_once()

    assert (bench.started, bench.ends) == ([], [])


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_drain_waits_for_a_job_that_another_transaction_has_locked(bench: Bench) -> None:
    job = tasks.noop.enqueue()
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.id)
        bench.producer.run_once()
        assert (bench.started, bench.ends) == ([], [])

    bench.producer.run_once()

    assert (len(bench.started), bench.ends) == (1, [])


def test_a_worker_that_has_reported_the_end_of_its_drain_fetches_nothing_more(bench: Bench) -> None:
    bench.producer.run_once()
    assert bench.ends == [True]
    late = tasks.noop.enqueue()

    bench.producer.wake()
    bench.producer.run_once()

    assert (bench.started, bench.ends) == ([], [True])
    assert stored(late).state is JobState.AVAILABLE


def test_a_drain_is_not_over_when_a_claim_without_an_answer_is_given_back_at_the_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = bench.engine.fetch

    def lose_the_answer(*args: Any, **kwargs: Any) -> None:
        fetch(*args, **kwargs)
        raise EngineUnavailable("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(bench.engine, "fetch", lose_the_answer)
        with pytest.raises(EngineUnavailable):
            bench.producer.run_once()
    bench.producer.run_once()
    assert not bench.producer.has_given_back
    tasks.noop.enqueue()
    bench.engine.fetch("default", 1, bench.worker)  # the server goes on with a statement, whose connection is gone

    bench.producer.on_stop()

    assert bench.producer.has_given_back
    assert states() == {"available": 1}


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_drain_looks_once_more_after_a_retired_worker(is_drained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SupervisorSpec(name="t", backend="default", lanes=(LaneSpec(queues=("default",), slots=1),), drain=True)
    supervisor = Supervisor(spec, engine(), entries.store("default").settings)
    supervisor._successions.finish(0)
    ours, theirs = socket.socketpair()
    with theirs:
        retired = Child(
            id=uuid4(), name="t.1", process=SimpleNamespace(poll=lambda: 0), control=ours, claims=ClaimBlock.create()
        )
        retired.claims.leave(END_DONE if is_drained else END_REPLACE)
        supervisor._retiring.append(retired)

        supervisor._reap()

    assert supervisor._is_drained() is is_drained


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_drain_outlasts_receivers_that_take_longer_than_its_jobs(processes: str, tmp_path: Path) -> None:
    tasks.noop.enqueue_many([((), {})] * 4)
    tasks.find.using(priority=10).enqueue()

    received = tmp_path / "received"
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "DJQUEUE_TEST_RECEIVER": "0.3",
        "DJQUEUE_TEST_RECEIVED": str(received),
    }
    with worker("--drain", "--concurrency", "1", "--processes", processes, env=env) as running:
        assert running.wait() == 0, running.log

    assert states() == {"completed": 5}, running.log
    # No receiver is cut off because the outcome of its job is stored already.
    assert received.read_text().splitlines() == ["received"] * 5, running.log
