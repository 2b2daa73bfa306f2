"""How often a producer looks at its queues, and how many marks it sets: step by step, on a real store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.fetcher import PostgresFetcher
from djqueue.engines.postgres.listener import PostgresListener
from djqueue.jobs.records import ClaimedJob, WorkerInfo
from djqueue.runtime import producer as producer_module
from djqueue.runtime import watch
from djqueue.runtime.acker import Acker
from djqueue.runtime.cancels import CHECK_SECONDS as CANCEL_CHECK_SECONDS
from djqueue.runtime.cancels import Canceller
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.execution import Execution
from djqueue.runtime.producer import Producer
from tests.ledger import tasks
from tests.roles import Roles
from tests.runtime.held_lane import HeldLane, begin_first

pytestmark = pytest.mark.django_db(transaction=True)

LONG = 10.0
MANY = [f"tenant-{number:03}" for number in range(500)]


class Looks(PostgresFetcher):
    """Notes which queues are looked at."""

    def __init__(self) -> None:
        super().__init__("default")
        self.at: list[str] = []

    def fetch(self, queue: str, *args: Any, **options: Any) -> list[ClaimedJob]:
        self.at.append(queue)
        return super().fetch(queue, *args, **options)

    def ready(self, queues: Any, **options: Any) -> set[str]:
        self.at.append("all the others")
        return super().ready(queues, **options)


class Marks(PostgresListener):
    """Notes what is marked and given up, and how long the sleeps may last."""

    def __init__(self) -> None:
        super().__init__("default")
        self.changes: list[str] = []
        self.timeouts: list[float] = []

    def mark(self, queues: Any) -> bool:
        before = set(self._marked)
        stood = super().mark(queues)
        self.changes += [f"+{queue}" for queue in sorted(self._marked - before)]
        return stood

    def unmark(self, queues: Any = None) -> None:
        before = set(self._marked)
        super().unmark(queues)
        self.changes += [f"-{queue}" for queue in sorted(before - self._marked)]

    def wait(self, timeout: float) -> set[str]:
        self.timeouts.append(timeout)
        return super().wait(timeout)


class Bench:
    """A producer whose jobs start and do not end. Its poll comes too late for every test."""

    def __init__(self, *lanes: tuple[list[str], int]) -> None:
        store = PostgresEngine("default")
        self.looks, self.marks = Looks(), Marks()
        self.worker = uuid4()
        with store.open_registrar() as registrar:
            registrar.register(
                [WorkerInfo(id=self.worker, name="test", hostname="here", pid=1, queues={}, concurrency=3)]
            )
        self.claims = ClaimBlock.create()
        self.claims.record_beat(time.monotonic() + 1000)  # nobody beats in between
        self.acker = Acker(Roles(store), self.claims)
        self.started: list[Execution] = []
        self.lanes = [HeldLane(queues, slots, begin_first(self.started)) for queues, slots in lanes]
        self.producer = Producer(
            self.worker,
            self.looks,
            self.marks,
            self.lanes,
            self.acker,
            self.claims,
            Canceller(self.looks, {}),
            poll_interval_seconds=LONG,
        )

    def fall_asleep(self) -> None:
        """Let it look, mark, and look once more; the sleep is interrupted."""
        self.producer.run_once()
        self.wake()
        assert self.marks.timeouts[-1] > 1
        self.looks.at.clear()
        self.marks.changes.clear()

    def wake(self) -> None:
        self.marks.interrupt()
        self.producer.run_once()

    def close(self) -> None:
        self.producer.on_stop()
        self.acker.on_stop()
        self.claims.close()


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    with ExitStack() as stack:

        def make(*lanes: tuple[list[str], int]) -> Bench:
            made = Bench(*(lanes or [(["default"], 50)]))
            stack.callback(made.close)
            return made

        yield make


def test_before_it_sleeps_it_marks_and_looks_once_more(bench: Callable[..., Bench]) -> None:
    one = bench()

    one.producer.run_once()
    one.wake()

    assert one.looks.at == ["default", "default"]
    assert one.marks.changes == ["+default"]


def test_a_job_now_and_then_costs_one_look_and_no_change_of_a_mark(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.fall_asleep()

    for _ in range(3):
        time.sleep(0.02)  # now and then
        tasks.noop.enqueue()
        one.producer.run_once()  # woken without a look: it was asleep
        one.wake()

    assert len(one.started) == 3
    assert one.looks.at == ["default"] * 3
    assert one.marks.changes == []


def test_an_interruption_costs_no_look(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.fall_asleep()

    one.wake()

    assert one.looks.at == []


def test_only_the_queue_that_was_named_is_looked_at(bench: Callable[..., Bench]) -> None:
    one = bench((["default", "mail"], 50), (["reports"], 50))
    one.fall_asleep()

    tasks.noop.using(queue_name="mail").enqueue()
    one.producer.run_once()
    one.wake()

    assert one.looks.at == ["mail"]
    assert len(one.started) == 1


def test_the_poll_looks_everywhere(bench: Callable[..., Bench]) -> None:
    one = bench((["default", "mail"], 50), (["reports"], 50))
    one.fall_asleep()
    one.producer._poll_at = 0.0

    one.wake()

    assert sorted(one.looks.at) == ["default", "mail", "reports"]


def test_a_job_that_comes_after_the_look_that_found_another_is_not_missed(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench()
    one.fall_asleep()
    accept = one.producer._accept

    def meanwhile(*args: Any) -> None:
        accept(*args)
        if len(one.started) == 1:
            tasks.noop.enqueue()

    monkeypatch.setattr(one.producer, "_accept", meanwhile)
    tasks.noop.enqueue()

    one.producer.run_once()
    one.producer.run_once()  # finds the first, and is woken by the second
    one.wake()

    assert len(one.started) == 2
    assert one.marks.changes == []


def test_when_the_marks_were_lost_it_looks(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("djqueue.engines.postgres.listener._RECONNECT_SECONDS", 0.0)
    one = bench()
    one.fall_asleep()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'djqueue listener' AND datname = current_database()"
        )
    tasks.noop.enqueue()

    while not one.looks.at:
        one.producer.run_once()

    assert len(one.started) == 1


def test_a_worker_that_was_silent_looks_everywhere_when_it_beats_again(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench()
    one.fall_asleep()
    monkeypatch.setattr(producer_module, "STOP_FETCHING_SECONDS", -2000.0)
    tasks.noop.enqueue()
    one.producer.run_once()
    assert one.looks.at == []
    monkeypatch.setattr(producer_module, "STOP_FETCHING_SECONDS", 6.0)

    one.wake()

    assert len(one.started) == 1


def test_where_jobs_come_fast_nobody_needs_to_wake_it(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench()
    one.fall_asleep()
    monkeypatch.setattr(watch, "FAST_SECONDS", LONG)
    monkeypatch.setattr(watch, "STILL_SECONDS", LONG)
    tasks.noop.enqueue()
    one.producer.run_once()

    for _ in range(3):
        tasks.noop.enqueue()
        one.producer.run_once()

    assert one.marks.changes == ["-default"]
    assert one.marks.timeouts[-1] <= watch.LOOK_SECONDS
    assert len(one.started) >= 3

    monkeypatch.setattr(watch, "STILL_SECONDS", 0.0)
    one.producer.run_once()
    one.wake()

    assert len(one.started) == 4
    assert one.marks.changes == ["-default", "+default"]
    assert one.marks.timeouts[-1] > 1


def test_a_mark_stands_for_a_moment_while_the_lane_is_full(bench: Callable[..., Bench]) -> None:
    one = bench((["default"], 1))
    one.fall_asleep()
    tasks.noop.enqueue()
    one.producer.run_once()

    one.producer.run_once()

    assert len(one.started) == 1
    assert one.marks.changes == []
    assert one.marks.timeouts[-1] <= watch.FULL_SECONDS


def test_a_full_lane_gives_up_its_mark_and_leaves_the_queue_to_another_worker(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FULL_SECONDS", 0.0)
    monkeypatch.setattr(producer_module, "FULL_SECONDS", 0.0)
    full, idle = bench((["default"], 1), (["mail"], 1)), bench()
    full.fall_asleep()
    idle.fall_asleep()
    tasks.noop.enqueue()
    full.producer.run_once()
    full.producer.run_once()
    assert full.marks.changes == ["-default"]  # and that of the other lane stands
    assert len(full.started) == 1

    while "+default" not in idle.marks.changes:
        idle.producer.run_once()
    idle.wake()
    tasks.noop.enqueue()
    idle.producer.run_once()
    idle.wake()

    assert len(idle.started) == 1


def test_when_there_is_room_again_it_looks(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "FULL_SECONDS", 0.0)
    one = bench((["default"], 1))
    for _ in range(2):
        tasks.noop.enqueue()
    one.producer.run_once()
    assert len(one.started) == 1

    one.lanes[0].finish_async(one.started[0], LONG)  # the slot is free, and no thread stays behind
    one.producer.run_once()

    assert len(one.started) == 2


def test_t60_a_lost_wake_up_of_a_cancel_is_made_up_within_two_seconds_whatever_the_poll_interval(
    bench: Callable[..., Bench],
) -> None:
    one = bench((["default"], 3))
    one.fall_asleep()
    one.producer._canceller._running = {0: None}  # type: ignore[dict-item]  # something runs

    assert one.producer._pause() <= CANCEL_CHECK_SECONDS
    one.producer._canceller._running = {}
    assert one.producer._pause() > CANCEL_CHECK_SECONDS
    one.producer._doubts, one.producer._doubt_after = [1.0], time.monotonic() + 3
    assert one.producer._pause() <= 3


@pytest.mark.parametrize("lanes", [[(MANY, 50)], [([queue], 50) for queue in MANY]], ids=["shared slots", "own slots"])
def test_t72_a_look_at_hundreds_of_idle_queues_is_a_handful_of_statements(
    bench: Callable[..., Bench], lanes: list[tuple[list[str], int]]
) -> None:
    one = bench(*lanes)
    one.fall_asleep()

    one.producer._look_everywhere()
    one.wake()

    assert len(one.looks.at) == producer_module.MISSES + 1
    assert one.looks.at[-1] == "all the others"
    assert one.marks.changes == []
    assert one.marks.timeouts[-1] > 1


def test_t72_the_few_of_hundreds_of_queues_that_have_jobs_are_fetched_from(bench: Callable[..., Bench]) -> None:
    one = bench((MANY, 50))
    one.fall_asleep()
    for queue in MANY[100:300:50]:
        tasks.noop.using(queue_name=queue).enqueue()

    one.producer._look_everywhere()
    one.producer.run_once()

    assert sorted(execution.job.queue for execution in one.started) == MANY[100:300:50]
    assert len(one.looks.at) <= producer_module.MISSES + 1 + 4


def test_t72_a_job_that_comes_between_the_look_and_the_sleep_is_found(bench: Callable[..., Bench]) -> None:
    one = bench((MANY, 50))
    look = one.looks.ready

    def then_enqueue(queues: Any, **options: Any) -> set[str]:
        found = look(queues, **options)
        one.looks.ready = look  # type: ignore[method-assign]
        tasks.noop.using(queue_name=MANY[-1]).enqueue()
        return found

    one.looks.ready = then_enqueue  # type: ignore[method-assign]
    one.producer.run_once()
    one.producer.run_once()

    assert [execution.job.queue for execution in one.started] == [MANY[-1]]
