from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.records import Ack
from djqueue.runtime.acker import Acker
from djqueue.runtime.claims import ClaimBlock
from djqueue.states import JobState


class Store:
    """An engine's ack with faults on demand; the real one is tested in tests/engines."""

    def __init__(self) -> None:
        self.stored: list[Ack] = []
        self.bad: set[int] = set()
        self.is_away = False
        self.stale: set[int] = set()

    def ack(self, acks: Sequence[Ack]) -> set[int]:
        if self.is_away:
            raise EngineUnavailable("away")
        if any(ack.id in self.bad and ack.state is JobState.COMPLETED for ack in acks):
            raise EngineRefused("no such value")
        self.stored.extend(acks)
        return {ack.id for ack in acks} - self.stale

    def close(self) -> None: ...


@pytest.fixture
def claims() -> Iterator[ClaimBlock]:
    claims = ClaimBlock.create()
    yield claims
    claims.close()


def completed(job_id: int) -> Ack:
    return Ack(job_id, 1, JobState.COMPLETED, 1.0, 2.0)


def fill(acker: Acker, claims: ClaimBlock, ids: Sequence[int]) -> None:
    for job_id in ids:
        acker.put(completed(job_id), claims.hold(job_id, 1))


def test_what_has_piled_up_is_written_together(claims: ClaimBlock) -> None:
    store = Store()
    acker = Acker(store, claims)  # type: ignore[arg-type]
    fill(acker, claims, [1, 2, 3])

    acker.run_once()

    assert [ack.id for ack in store.stored] == [1, 2, 3]
    assert (acker.accepted, claims.held) == (3, 0)


def test_outcomes_are_kept_while_the_store_is_away_and_written_once_it_is_back(claims: ClaimBlock) -> None:
    store = Store()
    acker = Acker(store, claims)  # type: ignore[arg-type]
    fill(acker, claims, [1, 2])
    store.is_away = True

    with pytest.raises(EngineUnavailable):
        acker.run_once()
    fill(acker, claims, [3])
    store.is_away = False
    acker.run_once()

    assert sorted(ack.id for ack in store.stored) == [1, 2, 3]
    assert claims.held == 0


def test_a_bad_outcome_does_not_keep_its_neighbours_from_being_stored(claims: ClaimBlock) -> None:
    store = Store()
    store.bad = {2}
    acker = Acker(store, claims)  # type: ignore[arg-type]
    fill(acker, claims, [1, 2, 3])

    acker.run_once()

    assert {ack.id: ack.state for ack in store.stored} == {
        1: JobState.COMPLETED,
        2: JobState.DISCARDED,
        3: JobState.COMPLETED,
    }
    assert claims.held == 0


def test_a_store_that_goes_away_between_single_writes_gets_each_outcome_once(claims: ClaimBlock) -> None:
    store = Store()
    store.bad = {2}
    acker = Acker(store, claims)  # type: ignore[arg-type]
    fill(acker, claims, [1, 2, 3])
    ack = store.ack

    def away_after_the_first(acks: Sequence[Ack]) -> set[int]:
        accepted = ack(acks)
        store.is_away = True
        return accepted

    store.ack = away_after_the_first  # type: ignore[method-assign]
    with pytest.raises(EngineUnavailable):
        acker.run_once()
    store.ack = ack  # type: ignore[method-assign]
    store.is_away = False
    acker.run_once()

    assert sorted(one.id for one in store.stored) == [1, 2, 3]
    assert claims.held == 0


def test_stale_outcomes_are_counted(claims: ClaimBlock) -> None:
    store = Store()
    store.stale = {2}
    acker = Acker(store, claims)  # type: ignore[arg-type]
    fill(acker, claims, [1, 2])

    acker.run_once()

    assert (acker.accepted, acker.stale, claims.held) == (1, 1, 0)
