"""Code that is called after a task and does not return: it is reported, and a worker that stands still for it is replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from djqueue import telemetry
from djqueue.models import FinishedJob
from djqueue.runtime import lingering
from djqueue.runtime.execution import Execution
from djqueue.runtime.lanes import Lane
from djqueue.runtime.lingering import Lingering
from tests.backlog import states
from tests.ledger import tasks
from tests.processes import environment, eventually, worker


class Hanging:
    """Stands where the executor stands: jobs have their outcome, and their threads do not come back."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.entered = threading.Semaphore(0)

    def run(self, execution: Execution) -> float:
        return self._run(execution)

    def _run(self, execution: Execution) -> float:
        self.entered.release()
        assert self.let_go.wait(30)
        return 0.0

    def release_connections(self) -> None:
        pass

    close_connections = release_connections


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    executor = Hanging()
    yield executor
    executor.let_go.set()


def _execution(number: int) -> Execution:
    job = SimpleNamespace(id=number, task="shop.tasks.mail")
    return Execution(job, SimpleNamespace(is_async=False), number, 0.0)  # type: ignore[arg-type]


def _look(watch: Lingering, monkeypatch: pytest.MonkeyPatch, *, after: float) -> list[int]:
    """Look again after that many seconds; return the jobs that were reported."""
    now = lingering.time.monotonic()
    seen: list[int] = []
    detach = telemetry.attach(lambda event, fields: seen.append(fields["job"]))
    with monkeypatch.context() as patch:
        patch.setattr(lingering, "time", SimpleNamespace(monotonic=lambda: now + after))
        watch.look()
    detach()
    return seen


def test_a_job_that_keeps_its_slot_after_its_outcome_is_reported_once_and_then_given_up(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Lane(["default"], 2, hanging)  # type: ignore[arg-type]
    running = {1: _execution(1)}
    watch = Lingering([lane], running)
    lane.add([running[1], _execution(2)])
    for _ in range(2):
        assert hanging.entered.acquire(timeout=20)

    reported = [_look(watch, monkeypatch, after=seconds) for seconds in (0, 59, 61, 63)]
    assert reported == [[], [], [2], []]
    assert (len(watch), watch.stops_a_lane) == (0, False)

    _look(watch, monkeypatch, after=301)
    assert (len(watch), watch.stops_a_lane) == (1, False)

    del running[1]  # it has its outcome now, and does not come back either
    reported = [_look(watch, monkeypatch, after=seconds) for seconds in (303, 364, 604)]
    assert reported == [[], [1], []]
    assert (len(watch), watch.stops_a_lane) == (2, True)

    lane.dismiss_threads()


def test_a_slot_that_is_free_again_is_forgotten(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane(["default"], 1, hanging)  # type: ignore[arg-type]
    watch = Lingering([lane], {})
    lane.add([_execution(1)])
    _look(watch, monkeypatch, after=0)
    _look(watch, monkeypatch, after=301)
    assert watch.stops_a_lane

    hanging.let_go.set()
    eventually(lambda: not lane.occupants())
    _look(watch, monkeypatch, after=303)

    assert (len(watch), watch.stops_a_lane) == (0, False)
    lane.dismiss_threads()


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_receivers_hang_says_where_and_is_replaced() -> None:
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "DJQUEUE_TEST_RECEIVER": "3600",
        "DJQUEUE_TEST_HASTE": "1",
    }
    tasks.record.enqueue_many(((str(number),), {}) for number in range(6))
    with worker("--concurrency", "2", env={**environment(), **env}) as running:
        eventually(lambda: states() == {"completed": 6}, 60, lambda: running.log)

        assert running.log.count("worker.recycling") >= 2, running.log
        assert "job.lingering job=" in running.log
        assert "in _receive\n    time.sleep(seconds)" in running.log, running.log
        assert "worker.lost" not in running.log
    assert set(FinishedJob.objects.values_list("attempt", flat=True)) == {1}
