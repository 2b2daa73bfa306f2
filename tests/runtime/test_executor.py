"""When an executor does not call the function of a claimed job."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from djqueue.records import ClaimedJob
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.executor import DOUBTFUL_SECONDS, Executor
from djqueue.runtime.lanes import Execution, Lane
from djqueue.runtime.observers import Observers
from djqueue.states import JobState
from tests.ledger import tasks


class Acks:
    def __init__(self) -> None:
        self.put_back: list[tuple[int, JobState, bool]] = []

    def put(self, ack: Any, place: int) -> None:
        self.put_back.append((ack.id, ack.state, ack.is_spent))


def _begin(seconds_since_beat: float) -> tuple[Any, Acks]:
    claims, acks = ClaimBlock.create(), Acks()
    claims.record_beat(time.monotonic() - seconds_since_beat)
    executor = Executor(
        uuid4(),
        None,
        acks,
        claims,
        None,
        max_result_bytes=1000,
        on_stuck=lambda run: None,  # type: ignore[arg-type]
    )
    now = datetime.now(UTC)
    job = ClaimedJob(7, 1, "default", "x", "[]", "{}", 1, 3, 0, now, None, None, None, now, "[]", "{}", now)
    run = executor._begin(Execution(job, tasks.noop, False, claims.hold(7, 1), time.monotonic()))
    claims.close()
    return run, acks


def test_a_job_begins_in_a_worker_that_is_known_to_live() -> None:
    run, acks = _begin(1)

    assert run is not None
    assert acks.put_back == []


def test_b12_a_worker_that_was_stopped_for_long_begins_nothing_that_it_had_claimed() -> None:
    run, acks = _begin(DOUBTFUL_SECONDS + 1)

    assert run is None
    assert acks.put_back == [(7, JobState.AVAILABLE, False)]


def test_what_fails_around_a_job_does_not_cost_its_slot(monkeypatch: Any, caplog: Any) -> None:
    def fail(*, is_clean: bool) -> None:
        raise RuntimeError("a database router of the project")

    monkeypatch.setattr("djqueue.runtime.django_connections.settle", fail)
    claims, acks = ClaimBlock.create(), Acks()
    claims.record_beat(time.monotonic())
    observers = Observers(uuid4(), "default", type(None))
    executor = Executor(uuid4(), None, acks, claims, observers, max_result_bytes=1000, on_stuck=lambda run: None)  # type: ignore[arg-type]
    lane = Lane(["default"], 1, start_thread=executor.start_thread, start_async=executor.start_async)
    now = datetime.now(UTC)
    executions = [
        Execution(
            ClaimedJob(number, 1, "default", "x", "[]", "{}", 1, 3, 0, now, None, None, None, now, "[]", "{}", now),
            tasks.noop,
            False,
            claims.hold(number, 1),
            time.monotonic(),
        )
        for number in range(3)
    ]

    lane.add(executions)
    deadline = time.monotonic() + 10
    while not lane.is_idle:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # a thread works; there is no event to wait on
    lane.dismiss_threads()

    assert acks.put_back == [(number, JobState.COMPLETED, True) for number in range(3)]
    assert "a database router of the project" in caplog.text
