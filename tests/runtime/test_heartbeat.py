"""Who is silent, by one's own clock and looks only."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID, uuid4

import pytest

from djqueue.jobs.records import Heartbeat
from djqueue.runtime import heartbeat as heart
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.heartbeat import Heartbeats


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Beats:
    """As much of an engine as a heart needs, with beats that the test decides."""

    def __init__(self) -> None:
        self.rows: list[Heartbeat] = []

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        return self.rows + [Heartbeat(worker, 1, False) for worker in workers]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(heart, "time", clock)
    return clock


def _watch(clock: Clock, engine: Beats) -> Heartbeats:
    return Heartbeats(engine, on_dead=lambda worker: None)  # type: ignore[arg-type]


def test_a_worker_is_silent_after_ten_seconds_of_unbroken_watching(clock: Clock) -> None:
    engine, other = Beats(), uuid4()
    engine.rows = [Heartbeat(other, 7, False)]
    watching = _watch(clock, engine)

    for _ in range(5):
        watching.run_once()
        assert watching.silent() == {}
        clock.now += 2
    watching.run_once()

    assert watching.silent() == {other: 7}


def test_time_that_passed_since_the_last_look_is_no_silence(clock: Clock) -> None:
    """A leader that was stopped for five seconds has not seen whether anybody beat meanwhile."""
    engine, other = Beats(), uuid4()
    engine.rows = [Heartbeat(other, 7, False)]
    watching = _watch(clock, engine)
    for _ in range(4):
        watching.run_once()
        clock.now += 2

    clock.now += 3.5  # 11.5 s since the beat was first seen, 5.5 s since it was last seen

    assert watching.silent() == {}


def test_a_gap_in_the_watching_starts_the_wait_afresh(clock: Clock) -> None:
    engine, other = Beats(), uuid4()
    engine.rows = [Heartbeat(other, 7, False)]
    watching = _watch(clock, engine)
    for _ in range(4):
        watching.run_once()
        clock.now += 2

    clock.now += 30
    watching.run_once()
    clock.now += 2
    watching.run_once()

    assert watching.silent() == {}


def test_a_worker_that_ends_during_its_own_beat_disturbs_nobody() -> None:
    engine, block = Beats(), ClaimBlock.create()
    beating = Heartbeats(engine, on_dead=lambda worker: None)  # type: ignore[arg-type]
    beating.add(uuid4(), block)
    block.close()

    assert beating.run_once() == heart.BEAT_SECONDS


def test_after_an_outage_hearts_beat_again_before_anybody_may_miss_them() -> None:
    assert heart.Heartbeats.longest_pause_seconds < heart.SILENT_SECONDS / 2


def test_t18_a_worker_may_be_set_draining_while_another_thread_beats() -> None:
    class Meddling(UUID):
        def __hash__(self) -> int:
            if one.is_ready:
                one.heart.set_draining(uuid4())  # as another thread would, while the set is gone through
            return super().__hash__()

    class One:
        is_ready = False
        heart = Heartbeats(Beats(), on_dead=lambda worker: None)  # type: ignore[arg-type]

    one, block = One(), ClaimBlock.create()
    first = Meddling(int=1)
    one.heart.add(first, block)
    one.heart.set_draining(first)
    one.is_ready = True

    one.heart.run_once()

    block.close()
