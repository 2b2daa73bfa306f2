"""When an executor does not call the function of a claimed job."""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from djqueue import Cancel, Discard, Retry, Snooze, telemetry
from djqueue.exceptions import JobSignal
from djqueue.jobs.records import ClaimedJob, TakenJob
from djqueue.jobs.silence import DOUBTFUL_SECONDS
from djqueue.jobs.states import JobState
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.execution import Execution
from djqueue.runtime.executor import Executor
from djqueue.runtime.lanes import Lane
from djqueue.runtime.lifecycle import Lifecycle
from djqueue.runtime.observers import Observers
from djqueue.runtime.timekeeper import GRACE_SECONDS, Timekeeper
from djqueue.tasks.task import Task
from tests.ledger import tasks
from tests.processes import eventually


class Acks:
    def __init__(self) -> None:
        self.put_back: list[tuple[int, JobState, bool]] = []
        self.results: list[str | None] = []
        self.taken: list[bool] = []
        """Whether the outcome carries its job, which the store does not have any more."""

    def put(self, ack: Any, slot: int) -> None:
        self.put_back.append((ack.id, ack.state, ack.is_spent))
        self.results.append(ack.result)
        self.taken.append(ack.taken is not None)


class Bench:
    """An executor with one lane, and nothing behind it."""

    def __init__(self, slots: int) -> None:
        self.claims, self.acks = ClaimBlock.create(), Acks()
        self.claims.record_beat(time.monotonic() + 1000)  # nobody beats in between
        observers = Observers(uuid4(), "default", type(None))
        observers._logs_start = observers._logs_finish = False  # whatever listens in a test process
        self.lifecycle = _lifecycle(self.acks, self.claims, observers)
        self.executor = Executor(None, self.lifecycle, observers, max_result_bytes=1000)  # type: ignore[arg-type]
        self.lane = Lane(["default"], slots, self.executor)

    def add(self, *calls: tuple[Task, list[Any]], max_attempts: int = 3) -> None:
        """Hand jobs, numbered from 0, to the lane."""
        now = datetime.now(UTC)
        self.lane.add(
            [
                Execution(
                    ClaimedJob(
                        *(number, 1, "default", "x", json.dumps(args), "{}", 1, max_attempts, 0),
                        *(now, None, None, None, now, "[]", "{}", now),
                    ),
                    task,
                    self.claims.hold(number, 1),
                    time.monotonic(),
                )
                for number, (task, args) in enumerate(calls)
            ]
        )

    def run(self, *calls: tuple[Task, list[Any]], max_attempts: int = 3) -> None:
        """Execute jobs, numbered from 0, to the end of all."""
        self.add(*calls, max_attempts=max_attempts)
        deadline = time.monotonic() + 20
        while self.lane.has_waiting or self.lane.running:
            assert time.monotonic() < deadline
            time.sleep(0.01)  # a thread works; there is no event to wait on
        self.lane.dismiss_threads()
        self.lifecycle.timekeeper.stop()
        self.executor.close()


def _lifecycle(acks: Acks, claims: ClaimBlock, observers: Any) -> Lifecycle:
    return Lifecycle(uuid4(), None, acks, claims, observers, on_stuck=lambda execution: None)  # type: ignore[arg-type]


def _begin(seconds_since_beat: float, kind: type[ClaimedJob] = ClaimedJob) -> tuple[bool, Acks]:
    claims, acks = ClaimBlock.create(), Acks()
    claims.record_beat(time.monotonic() - seconds_since_beat)
    now = datetime.now(UTC)
    job = kind(7, 1, "default", "x", "[]", "{}", 1, 3, 0, now, None, None, None, now, "[]", "{}", now)
    has_begun = _lifecycle(acks, claims, None).begin(Execution(job, tasks.noop, claims.hold(7, 1), time.monotonic()))
    claims.close()
    return has_begun, acks


def test_a_job_begins_in_a_worker_that_is_known_to_live() -> None:
    has_begun, acks = _begin(1)

    assert has_begun
    assert acks.put_back == []


def test_b12_a_worker_that_was_stopped_for_long_begins_nothing_that_it_had_claimed() -> None:
    has_begun, acks = _begin(DOUBTFUL_SECONDS + 1)

    assert not has_begun
    assert acks.put_back == [(7, JobState.AVAILABLE, False)]


def test_what_such_a_worker_had_taken_out_of_the_store_goes_back_with_its_job() -> None:
    has_begun, acks = _begin(DOUBTFUL_SECONDS + 1, TakenJob)

    assert not has_begun
    assert (acks.put_back, acks.taken) == ([(7, JobState.AVAILABLE, False)], [True])


def test_the_connections_of_a_thread_are_given_back_when_the_end_of_its_job_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a log handler of the project")

    bench, settled = Bench(1), []
    monkeypatch.setattr("djqueue.runtime.django_connections.give_back", lambda *, is_clean: settled.append(is_clean))
    monkeypatch.setattr(Observers, "want_finish", lambda self, failure: True)

    with monkeypatch.context() as patch:
        patch.setattr(bench.executor._observers, "finished", fail)
        bench.run((tasks.noop, []), (tasks.fail, []))

    assert [state for _, state, _ in bench.acks.put_back] == [JobState.COMPLETED, JobState.AVAILABLE]
    assert settled == [False, False, False]  # after the failed task before receivers are called, too


def test_the_connections_of_a_thread_are_given_back_after_a_job_that_has_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, settled = Bench(1), []
    monkeypatch.setattr("djqueue.runtime.django_connections.give_back", lambda *, is_clean: settled.append(is_clean))
    monkeypatch.setattr(bench.lifecycle, "begin", lambda execution: False)

    bench.run((tasks.noop, []))

    assert settled == [True]


@pytest.mark.parametrize("task", [tasks.noop, tasks.find])
def test_what_fails_around_a_job_does_not_cost_its_slot(
    task: Task, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a log handler of the project")

    bench = Bench(1)
    monkeypatch.setattr("djqueue.runtime.django_connections.give_back", fail)
    monkeypatch.setattr(bench.executor._observers, "finished", fail)
    monkeypatch.setattr(Observers, "want_finish", lambda self, failure: True)

    bench.run(*[(task, [])] * 3)

    assert bench.acks.put_back == [(number, JobState.COMPLETED, True) for number in range(3)]
    assert "a log handler of the project" in caplog.text


@pytest.mark.parametrize("task", [tasks.noop, tasks.find])
def test_t57_a_job_that_cannot_even_begin_does_not_cost_its_slot_and_is_tried_again(
    task: Task, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(1)
    begin, failures = bench.claims.begin, [RuntimeError("the first only")]

    def fail_once(*args: Any) -> None:
        if failures:
            raise failures.pop()
        begin(*args)

    monkeypatch.setattr(bench.claims, "begin", fail_once)

    bench.run(*[(task, [])] * 3)

    assert bench.acks.put_back == [(0, JobState.RETRYABLE, True), *((n, JobState.COMPLETED, True) for n in (1, 2))]
    assert "the first only" in caplog.text


@pytest.mark.parametrize("turns", [0, 3])
def test_what_an_async_job_leaves_in_a_context_variable_does_not_reach_the_next(turns: int) -> None:
    bench = Bench(1)

    bench.run((tasks.leave_behind, [turns]), (tasks.find, []))

    assert bench.acks.results == [None, '"untouched"']


def test_async_jobs_that_never_wait_let_others_go_on() -> None:
    bench = Bench(2)

    bench.run((tasks.take_turns, [5]), *[(tasks.find, [])] * 5000)

    ended = [number for number, _, _ in bench.acks.put_back]
    assert sorted(ended) == list(range(5001))
    assert ended.index(0) < 2000


@pytest.mark.parametrize("task", [tasks.noop, tasks.find])
def test_t13_a_run_that_has_ended_is_not_kept_until_its_deadline(task: Task) -> None:
    bench = Bench(2)
    bench.lifecycle.timekeeper.start()

    bench.run(*[(replace(task, timeout=timedelta(hours=1)), [])] * 500)

    assert len(bench.acks.put_back) == 500
    eventually(lambda: (gc.collect(), sum(isinstance(each, Execution) for each in gc.get_objects()) <= 2)[1])


SIGNALS: dict[str, Callable[[], JobSignal]] = {
    "scheduled": lambda: Snooze(60),
    "retryable": lambda: Retry(delay=60),
    "cancelled": lambda: Cancel("late"),
    "discarded": lambda: Discard("late"),
}
"""Functions: an exception that outlives its test keeps its traceback, and with it the execution of the job."""


def ask_for(state: str) -> None:
    raise SIGNALS[state]()


@pytest.mark.parametrize("state", SIGNALS)
def test_what_a_task_asks_for_after_its_deadline_counts(state: str) -> None:
    bench = Bench(1)

    bench.run((replace(tasks.noop, func=ask_for, timeout=timedelta(microseconds=1)), [state]))

    assert [put_back[1] for put_back in bench.acks.put_back] == [state]


def test_receivers_hear_of_a_transactional_job_before_its_transaction_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Store:
        @contextmanager
        def transaction(self) -> Iterator[str]:
            happened.append("begin")
            yield "default"

        def ack_here(self, ack: Any) -> bool:
            happened.append("ack")
            return True

    bench = Bench(1)
    monkeypatch.setattr(bench.executor, "_engine", Store())
    monkeypatch.setattr(bench.acks, "finalize_elsewhere", lambda slot: None, raising=False)
    monkeypatch.setattr(Observers, "want_start", True)
    monkeypatch.setattr(Observers, "started", lambda self, run: happened.append("started"))

    bench.run((replace(tasks.noop, transactional=True), []))

    assert happened == ["started", "begin", "ack"]


@pytest.mark.parametrize("timeout", [None, timedelta(hours=1)])
@pytest.mark.parametrize("task", [tasks.hold_and_fail, tasks.ahold_and_fail])
def test_what_a_failed_job_had_in_memory_is_free_without_the_garbage_collector(
    task: Task, timeout: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("djqueue"), "disabled", True)  # pytest keeps what is logged
    bench, seen = Bench(1), []
    detach = telemetry.attach(lambda event, fields: seen.append(fields["error"]) if "error" in fields else None)
    gc.collect()
    gc.disable()
    try:
        bench.run(*[(replace(task, timeout=timeout), [])] * 20)

        assert seen == ["ValueError"] * 20
        assert len(tasks.held) <= 1
    finally:
        gc.enable()
        detach()


def test_t13_the_timekeeper_looks_at_the_earliest_deadline_and_wakes_for_no_later_one() -> None:
    running: dict[int, Execution] = {}
    stuck: list[Execution] = []
    keeper = Timekeeper(running, on_stuck=stuck.append)
    late, soon = (_execution(slot, timeout) for slot, timeout in enumerate((3600, 0.01)))
    for run in (late, soon):
        running[run.claim_slot] = run
        keeper.watch(run)
    assert keeper.run_once() <= 0.01

    time.sleep(0.02)  # until the deadline
    pause = keeper.run_once()

    assert (soon.is_overdue, late.is_overdue) == (True, False)
    assert GRACE_SECONDS - 1 < pause <= GRACE_SECONDS
    soon.asked_at -= GRACE_SECONDS
    keeper._look_by(0)
    assert keeper.run_once() > 3000
    assert stuck == [soon]
    running.clear()
    keeper._look_by(0)
    assert keeper.run_once() == 3600


def _execution(slot: int, timeout: float) -> Execution:
    now = datetime.now(UTC)
    job = ClaimedJob(7, 1, "default", "x", "[]", "{}", 1, 3, 0, now, None, None, None, now, "[]", "{}", now)
    task = replace(tasks.noop, timeout=timedelta(seconds=timeout))
    execution = Execution(job, task, slot, time.monotonic())
    execution.start()
    return execution


def test_an_error_in_the_last_steps_of_a_job_thread_is_logged_and_not_printed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: Any) -> None:
        raise RuntimeError("Event loop is closed")  # the process is ending while its last thread frees a slot

    bench = Bench(1)
    monkeypatch.setattr(bench.executor.event_loop, "call", refuse)

    # pytest turns an exception that ends a thread into a failure.
    bench.add((tasks.noop, []), (tasks.find, []))

    eventually(lambda: "Unexpected error in a job thread" in caplog.text)
    assert bench.acks.put_back == [(0, JobState.COMPLETED, True)]
    bench.executor.close()
