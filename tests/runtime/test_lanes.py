from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from djqueue.runtime import lanes
from djqueue.runtime.execution import Execution
from djqueue.runtime.lanes import PREFETCH_LIMIT, PREFETCH_SECONDS, STANDBY_SECONDS, Lane
from tests.runtime.held_lane import HeldLane


def execution(number: int, *, is_async: bool = False, age: float = 0.0) -> Execution:
    task = SimpleNamespace(is_async=is_async, timeout=None)
    return Execution(number, task, number, time.monotonic() - age)  # type: ignore[arg-type]


class Recorder:
    """Stands where the executor stands, and notes what it is given."""

    def __init__(self) -> None:
        self.threads: list[Any] = []
        self.tasks: list[Any] = []

    def lane(self, slots: int) -> Lane:
        return HeldLane(["default"], slots, self.start, lambda many: self.tasks.extend(one.job for one in many))

    def start(self, lane: Lane) -> None:
        index = len(self.threads)
        self.threads.append(None)
        self.threads[index] = lane.first_for_thread().job  # type: ignore[union-attr]


def test_a_lane_that_knows_nothing_takes_only_what_it_has_slots_for() -> None:
    lane = Recorder().lane(3)

    assert lane.room() == 3


def test_jobs_beyond_the_slots_wait_in_order() -> None:
    recorder = Recorder()
    lane = recorder.lane(2)

    lane.add([execution(number) for number in range(4)])

    assert recorder.threads == [0, 1]
    assert lane.next_for_thread(execution(0), 0.01).job == 2  # type: ignore[union-attr, comparison-overlap]
    assert lane.next_for_thread(execution(1), 0.01).job == 3  # type: ignore[union-attr, comparison-overlap]


def test_sync_and_async_jobs_share_the_slots() -> None:
    recorder = Recorder()
    lane = recorder.lane(2)

    lane.add([execution(0), execution(1, is_async=True), execution(2, is_async=True)])

    assert (recorder.threads, recorder.tasks, lane.running) == ([0], [1], 2)
    assert [one.job for one in lane.finish_async(execution(0), 0.01)] == [2]  # type: ignore[misc, comparison-overlap]


def test_short_jobs_raise_what_may_wait_and_one_long_job_ends_that() -> None:
    lane = Recorder().lane(10)
    lane.add([execution(number) for number in range(10)])

    for place in range(5):
        lane.finish_async(execution(place), 0.00001)
    short = lane.room()
    lane.finish_async(execution(5), 5.0)

    assert short == PREFETCH_LIMIT + 5
    assert lane.room() == 6  # its free slots, and nothing beyond


def test_ten_millisecond_jobs_wait_for_fifty_milliseconds_of_work_at_most() -> None:
    lane = Recorder().lane(100)
    lane.add([execution(number) for number in range(100)])

    for place in range(100):
        lane.finish_async(execution(place), 0.01)

    assert 500 <= lane.room() - 100 <= 600


def test_the_first_job_is_believed_to_be_like_the_others() -> None:
    lane = Recorder().lane(10)
    lane.add([execution(0)])

    lane.finish_async(execution(0), 0.02)

    assert lane.room() == 10 + 25  # 50 ms of work


def test_t47_slots_full_of_long_jobs_take_nothing_ahead_however_short_the_jobs_before_were(clock: Clock) -> None:
    lane = Recorder().lane(10)
    jobs = [execution(number, is_async=True) for number in range(20)]
    lane.add(jobs)
    for number in range(10):
        lane.finish_async(jobs[number], 0.0001)

    flowing = lane.room()
    clock.now += 2 * PREFETCH_SECONDS

    assert flowing == PREFETCH_LIMIT
    assert lane.room() == 0


def test_t47_one_slot_that_moves_beside_long_jobs_takes_ahead_what_it_alone_can_do(clock: Clock) -> None:
    lane = Recorder().lane(10)
    lane.add([execution(number, is_async=True) for number in range(9)])

    for number in range(9, 1000):  # a job a millisecond
        short = execution(number, is_async=True)
        lane.add([short])
        clock.now += 0.001
        lane.finish_async(short, 0.001)
    lane.add([execution(1000, is_async=True)])

    assert lane.room() == 50


def test_t47_jobs_that_all_take_long_are_taken_ahead_as_ever(clock: Clock) -> None:
    lane = Recorder().lane(100)
    lane.add([execution(number, is_async=True) for number in range(100)])
    clock.now += 0.2
    lane.finish_async(execution(0), 0.2)
    lane.add([execution(100, is_async=True)])

    clock.now += 0.15

    assert lane.room() == 25  # 50 ms of work


def test_what_has_waited_too_long_is_taken_back_and_nothing_is_prefetched_after_that() -> None:
    lane = Recorder().lane(1)
    lane.estimate = 0.0001
    lane.add([execution(0), execution(1, age=1.0), execution(2)])

    stranded = lane.take_back(older_than=0.25)

    assert [one.job for one in stranded] == [1]  # type: ignore[misc, comparison-overlap]
    assert lane.room() == -1  # one runs, one waits: no more until the estimate has come down


def test_the_producer_hears_of_room_once() -> None:
    lane = Recorder().lane(1)
    lane.add([execution(0, is_async=True)])
    heard: list[int] = []
    lane.on_room = lambda: heard.append(1)

    lane.finish_async(execution(0), 0.01)
    lane.add([execution(1, is_async=True)])
    lane.finish_async(execution(0), 0.01)

    assert heard == [1]


class Threads:
    """Threads of a lane, with a function in the place of the executor."""

    def __init__(self, slots: int, work: Callable[[int], object]) -> None:
        self.all: list[threading.Thread] = []
        self.ran: list[int] = []
        self._work = work
        self.lane = HeldLane(["default"], slots, self._start)

    def _start(self, lane: Lane) -> None:
        self.all.append(threading.Thread(target=self._serve, args=(lane,)))
        self.all[-1].start()

    def _serve(self, lane: Lane) -> None:
        one = lane.first_for_thread()
        while one is not None:
            self._work(one.claim_slot)
            self.ran.append(one.claim_slot)
            one = lane.next_for_thread(one, 0.001)

    def add(self, count: int) -> None:
        self.lane.add([execution(number) for number in range(count)])

    def wait(self) -> None:
        deadline = time.monotonic() + 10
        while self.lane.has_waiting or self.lane.running:
            assert time.monotonic() < deadline
            time.sleep(0.001)  # other threads work; there is no event to wait on


@contextmanager
def threads(slots: int, work: Callable[[int], object] = lambda number: None) -> Iterator[Threads]:
    made = Threads(slots, work)
    try:
        yield made
    finally:
        made.lane.dismiss_threads()
        for thread in made.all:
            thread.join(5)
            assert not thread.is_alive()


@pytest.mark.parametrize("slots", [1, 7])
def test_idle_threads_are_used_again_and_end_when_dismissed(slots: int) -> None:
    with threads(slots) as made:
        for _ in range(20):
            made.add(10)
            made.wait()

    assert sorted(made.ran) == sorted([*range(10)] * 20)
    assert len(made.all) <= slots


def test_jobs_that_wait_get_all_slots_at_once() -> None:
    together = threading.Barrier(50)

    with threads(50, lambda number: together.wait(10)) as made:
        for _ in range(3):  # with new threads, then with idle ones
            made.add(50)
            made.wait()

    assert len(made.ran) == 150
    assert not together.broken


def test_a_job_that_is_blocked_holds_up_nobody_but_itself() -> None:
    all_others = threading.Event()
    others: list[int] = []

    def work(number: int) -> None:
        if number % 100 == 0:
            assert all_others.wait(10)
        else:
            others.append(number)
            if len(others) == 297:
                all_others.set()

    with threads(4, work) as made:
        made.add(300)
        made.wait()

    assert sorted(made.ran) == list(range(300))


class Clock:
    """Stands where the module ``time`` stands; a sleep lets something happen."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sleeps: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(lanes, "time", made)
    return made


def called(clock: Clock, jobs: int) -> tuple[Lane, list[Lane]]:
    """A lane whose first thread runs the first of some jobs and has called a second thread, which has yet to come."""
    calls: list[Lane] = []
    lane = HeldLane(["default"], 9, calls.append)
    lane.add([execution(number) for number in range(jobs)])
    first = lane.first_for_thread()
    assert first is not None
    assert (first.job, len(calls)) == (0, 2)
    return lane, calls


def test_a_thread_that_comes_at_once_takes_a_job_and_calls_another(clock: Clock) -> None:
    lane, calls = called(clock, 3)

    second = lane.first_for_thread()

    assert second is not None
    assert (second.job, len(calls)) == (1, 3)


def test_a_thread_that_had_to_wait_for_the_interpreter_leaves_the_jobs_to_who_gets_on(clock: Clock) -> None:
    lane, calls = called(clock, 3)
    clock.now += 0.005
    lane.next_for_thread(execution(0), 0.0001)

    def finish() -> None:
        lane.next_for_thread(execution(0), 0.0001)
        lane.dismiss_threads()
        lane.next_for_thread(execution(0), 0.0001)

    clock.meanwhile = finish

    assert lane.first_for_thread() is None
    assert clock.sleeps == [STANDBY_SECONDS]
    assert (lane.has_waiting, lane.running, len(calls)) == (False, 0, 2)


def test_a_thread_that_stands_by_takes_over_when_no_job_begins_any_more(clock: Clock) -> None:
    lane, calls = called(clock, 4)
    clock.now += 0.005
    lane.next_for_thread(execution(0), 0.0001)  # and this job does not end
    clock.meanwhile = lambda: setattr(clock, "now", clock.now + 0.005)

    second = lane.first_for_thread()

    assert second is not None
    assert (second.job, clock.sleeps, len(calls)) == (2, [STANDBY_SECONDS], 3)


def test_a_lane_goes_on_with_the_threads_it_has_when_there_are_no_more_to_be_had() -> None:
    def refuse(lane: Lane) -> None:
        raise RuntimeError("can't start new thread")

    lane = HeldLane(["default"], 2, refuse)
    lane.add([execution(0), execution(1)])
    lane.on_thread = lambda lane: None  # there are some again

    lane.add([])

    assert lane.first_for_thread().job == 0  # type: ignore[union-attr, comparison-overlap]


def test_t73_that_there_are_no_more_threads_is_said_once_and_not_for_each_job(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(lane: Lane) -> None:
        raise RuntimeError("can't start new thread")

    lane = HeldLane(["default"], 2, refuse)

    for place in range(100):
        lane.add([execution(place)])

    assert caplog.text.count("lane.no_thread") == 1
