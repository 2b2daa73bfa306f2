from __future__ import annotations

import time
from typing import Any

import pytest

from djqueue.runtime.lanes import PREFETCH_LIMIT, Execution, Lane


def execution(number: int, *, is_async: bool = False, age: float = 0.0) -> Execution:
    return Execution(job=number, task=None, is_async=is_async, place=number, claimed=time.monotonic() - age)  # type: ignore[arg-type]


class Recorder:
    """Stands where the executor stands, and notes what it is given."""

    def __init__(self) -> None:
        self.threads: list[Any] = []
        self.tasks: list[Any] = []

    def lane(self, slots: int) -> Lane:
        return Lane(
            ["default"],
            slots,
            start_thread=lambda lane, one: self.threads.append(one.job),
            start_async=lambda lane, many: self.tasks.extend(one.job for one in many),
        )


def test_a_lane_that_knows_nothing_takes_only_what_it_has_slots_for() -> None:
    lane = Recorder().lane(3)

    assert lane.room() == 3


def test_jobs_beyond_the_slots_wait_in_order() -> None:
    recorder = Recorder()
    lane = recorder.lane(2)

    lane.add([execution(number) for number in range(4)])

    assert recorder.threads == [0, 1]
    assert lane.next_for_thread(0.01, lambda: None).job == 2  # type: ignore[union-attr, comparison-overlap]
    assert lane.next_for_thread(0.01, lambda: None).job == 3  # type: ignore[union-attr, comparison-overlap]


def test_sync_and_async_jobs_share_the_slots() -> None:
    recorder = Recorder()
    lane = recorder.lane(2)

    lane.add([execution(0), execution(1, is_async=True), execution(2, is_async=True)])

    assert (recorder.threads, recorder.tasks, lane.running) == ([0], [1], 2)
    assert [one.job for one in lane.finish_async(0.01)] == [2]  # type: ignore[misc, comparison-overlap]


def test_short_jobs_raise_what_may_wait_and_one_long_job_ends_that() -> None:
    lane = Recorder().lane(10)
    lane.add([execution(number) for number in range(10)])

    for _ in range(5):
        lane.finish_async(0.00001)
    short = lane.room()
    lane.finish_async(5.0)

    assert short == PREFETCH_LIMIT + 5
    assert lane.room() == 6  # its free slots, and nothing beyond


def test_ten_millisecond_jobs_wait_for_fifty_milliseconds_of_work_at_most() -> None:
    lane = Recorder().lane(100)
    lane.add([execution(number) for number in range(100)])

    for _ in range(100):
        lane.finish_async(0.01)

    assert 500 <= lane.room() - 100 <= 600


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

    lane.finish_async(0.01)
    lane.add([execution(1, is_async=True)])
    lane.finish_async(0.01)

    assert heard == [1]


@pytest.mark.parametrize("slots", [1, 7])
def test_idle_threads_are_used_again_and_end_when_dismissed(slots: int) -> None:
    import threading

    ended: list[str] = []
    ran: list[int] = []

    def start(lane: Lane, first: Execution) -> None:
        def serve() -> None:
            following: Execution | None = first
            while following is not None:
                ran.append(following.place)
                following = lane.next_for_thread(0.001, lambda: None)
            ended.append(threading.current_thread().name)

        thread = threading.Thread(target=serve)
        threads.append(thread)
        thread.start()

    threads: list[threading.Thread] = []
    lane = Lane(["default"], slots, start_thread=start, start_async=lambda lane, many: None)
    lane.add([execution(number) for number in range(200)])
    deadline = time.monotonic() + 10
    while not lane.is_idle:
        assert time.monotonic() < deadline
        time.sleep(0.001)  # other threads work; there is no event to wait on
    lane.dismiss_threads()
    for thread in threads:
        thread.join(5)

    assert sorted(ran) == list(range(200))
    assert len(threads) <= slots
    assert len(ended) == len(threads)
