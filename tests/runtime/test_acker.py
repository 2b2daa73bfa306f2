from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from threading import Event

import pytest

from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.records import Ack, Acked, TakenJob
from djqueue.jobs.states import JobState
from djqueue.runtime.acker import BATCH_CHARACTERS, LARGE_CHARACTERS, LONELY_FAILURES, Acker
from djqueue.runtime.claims import ClaimBlock


class Store:
    """An engine's ack with faults on demand; the real one is tested in tests/engines."""

    def __init__(self) -> None:
        self.stored: list[Ack] = []
        self.bad: set[int] = set()
        self.is_away = False
        self.stale: set[int] = set()
        self.hangs_up_at: Callable[[Sequence[Ack]], bool] = lambda acks: False
        self.batches: list[int] = []

    def ack(self, acks: Sequence[Ack]) -> Acked:
        self.batches.append(len(acks))
        if self.hangs_up_at(acks):
            raise EngineUnavailable("It hung up.")
        if self.is_away:
            raise EngineUnavailable("away")
        if any(ack.id in self.bad and ack.state is JobState.COMPLETED for ack in acks):
            raise EngineRefused("no such value")
        self.stored.extend(acks)
        return Acked({ack.id for ack in acks} - self.stale)

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


def test_t56_the_session_has_stored_nothing_yet_and_knows_how_before_the_first_outcome(claims: ClaimBlock) -> None:
    store = Store()
    store.stale = {0}
    flushed = Event()
    acker = Acker(store, claims, on_flushed=flushed.set)  # type: ignore[arg-type]

    acker.start()
    fill(acker, claims, [1])

    assert flushed.wait(20)
    acker.stop()
    assert acker.join(20)
    assert [ack.id for ack in store.stored] == [0, 1]
    assert (acker.accepted, acker.stale, claims.held) == (1, 0, 0)


def test_t56_a_store_that_is_away_when_the_acker_starts_changes_nothing(claims: ClaimBlock) -> None:
    store = Store()
    failures = iter([True])
    store.hangs_up_at = lambda acks: next(failures, False)
    flushed = Event()
    acker = Acker(store, claims, on_flushed=flushed.set)  # type: ignore[arg-type]

    acker.start()
    fill(acker, claims, [1])

    assert flushed.wait(20)
    acker.stop()
    assert acker.join(20)
    assert [ack.id for ack in store.stored] == [1]


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

    def away_after_the_first(acks: Sequence[Ack]) -> Acked:
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


def large(job_id: int, characters: int) -> Ack:
    return completed(job_id)._replace(result=f'"{"x" * characters}"')


def taken(job_id: int, state: JobState = JobState.AVAILABLE) -> Ack:
    now = datetime.now(UTC)
    job = TakenJob(
        job_id, 1, "once", "a.task", "[]", "{}", 1, 1, 0, now, None, None, None, now, "[]", "{}", now
    )  # fmt: skip
    return Ack(job_id, 1, state, is_spent=state.is_final, taken=job)


def run_until_written(acker: Acker, claims: ClaimBlock, rounds: int) -> None:
    for _ in range(rounds):
        if claims.held:
            with suppress(EngineUnavailable):
                acker.run_once()


def test_t69_a_batch_is_bounded_by_its_size(claims: ClaimBlock) -> None:
    store = Store()
    acker = Acker(store, claims)  # type: ignore[arg-type]
    for job_id in range(1, 6):
        acker.put(large(job_id, BATCH_CHARACTERS * 2 // 5), claims.hold(job_id, 1))
    acker.put(completed(6), claims.hold(6, 1))

    acker.run_once()

    assert [ack.id for ack in store.stored] == [1, 2, 3, 4, 5, 6]
    assert store.batches == [2, 2, 2]


def test_t69_a_job_behind_a_batch_at_which_the_store_hangs_up_is_stored(claims: ClaimBlock) -> None:
    store = Store()
    store.hangs_up_at = lambda acks: sum(len(ack.result or "") for ack in acks) > 150
    acker = Acker(store, claims)  # type: ignore[arg-type]
    for job_id in range(1, 21):
        acker.put(large(job_id, 100), claims.hold(job_id, 1))
    acker.put(completed(21), claims.hold(21, 1))

    run_until_written(acker, claims, 100)

    assert sorted(ack.id for ack in store.stored) == [*range(1, 22)]
    assert {ack.state for ack in store.stored} == {JobState.COMPLETED}


def test_t69_an_outcome_that_always_fails_alone_keeps_no_other_and_ends_as_a_failure(claims: ClaimBlock) -> None:
    store = Store()
    store.hangs_up_at = lambda acks: any(len(ack.result or "") > LARGE_CHARACTERS for ack in acks)
    acker = Acker(store, claims)  # type: ignore[arg-type]
    acker.put(large(1, LARGE_CHARACTERS), claims.hold(1, 1))
    fill(acker, claims, [2, 3])

    run_until_written(acker, claims, 5 * LONELY_FAILURES)

    assert {ack.id: ack.state for ack in store.stored} == {
        1: JobState.DISCARDED,
        2: JobState.COMPLETED,
        3: JobState.COMPLETED,
    }


def test_t69_no_outcome_is_blamed_for_a_store_that_is_away(claims: ClaimBlock) -> None:
    store = Store()
    acker = Acker(store, claims)  # type: ignore[arg-type]
    acker.put(large(1, LARGE_CHARACTERS), claims.hold(1, 1))
    store.is_away = True
    run_until_written(acker, claims, 5 * LONELY_FAILURES)

    store.is_away = False
    acker.run_once()

    assert [ack.state for ack in store.stored] == [JobState.COMPLETED]


def test_t69_batches_grow_again_after_a_failure(claims: ClaimBlock) -> None:
    store = Store()
    acker = Acker(store, claims)  # type: ignore[arg-type]
    store.is_away = True
    fill(acker, claims, range(1, 33))
    run_until_written(acker, claims, 10)
    store.is_away, store.batches = False, []

    acker.run_once()

    assert store.batches == [1, 2, 4, 8, 16, 1]


def test_t15_a_job_is_not_put_back_again_when_the_answer_was_lost(claims: ClaimBlock) -> None:
    store = Store()
    store.hangs_up_at = lambda acks: len(store.batches) == 1
    acker = Acker(store, claims)  # type: ignore[arg-type]
    acker.put(taken(1), claims.hold(1, 1))
    acker.put(taken(2, JobState.COMPLETED), claims.hold(2, 1))
    fill(acker, claims, [3])

    run_until_written(acker, claims, 10)

    assert sorted((ack.id, ack.state) for ack in store.stored) == [(2, JobState.COMPLETED), (3, JobState.COMPLETED)]
    assert claims.held == 0


def test_t15_a_job_is_put_back_later_when_the_store_could_not_be_asked(claims: ClaimBlock) -> None:
    store = Store()
    absence = EngineUnavailable("Nobody there.")
    absence.is_undone = True

    def nobody_there(acks: Sequence[Ack]) -> bool:
        if len(store.batches) == 1:
            raise absence
        return False

    store.hangs_up_at = nobody_there
    acker = Acker(store, claims)  # type: ignore[arg-type]
    acker.put(taken(1), claims.hold(1, 1))

    run_until_written(acker, claims, 10)

    assert [(ack.id, ack.state) for ack in store.stored] == [(1, JobState.AVAILABLE)]


def test_t62_an_outcome_whose_job_the_store_can_do_nothing_with_keeps_no_other(claims: ClaimBlock) -> None:
    store = Store()
    ack = store.ack

    def refuse_one(acks: Sequence[Ack]) -> Acked:
        if any(one.id == 1 for one in acks):
            raise EngineRefused("What the store has of it is bad.")
        return ack(acks)

    store.ack = refuse_one  # type: ignore[method-assign]
    acker = Acker(store, claims)  # type: ignore[arg-type]
    fill(acker, claims, [1, 2, 3])

    for _ in range(3):
        with suppress(EngineRefused):
            acker.run_once()

    assert sorted(one.id for one in store.stored) == [2, 3]


def test_t18_what_was_stored_before_the_store_went_away_is_not_taken_for_stale(claims: ClaimBlock) -> None:
    store = Store()
    acker = Acker(store, claims)  # type: ignore[arg-type]
    fill(acker, claims, [1, 2, 3])
    ack = store.ack

    def store_a_part(acks: Sequence[Ack]) -> Acked:
        store.ack = ack  # type: ignore[method-assign]
        absence = EngineUnavailable("away after the first two")
        absence.accepted = frozenset(ack(acks[:2]).accepted)
        store.stale = set(absence.accepted)  # as the store would answer for them from now on
        raise absence

    store.ack = store_a_part  # type: ignore[method-assign]
    with suppress(EngineUnavailable):
        acker.run_once()
    acker.run_once()

    assert [ack.id for ack in store.stored] == [1, 2, 3]
    assert (acker.accepted, acker.stale, claims.held) == (3, 0, 0)


def test_t24_the_text_of_a_failure_is_degraded_where_the_store_lacks_a_character(claims: ClaimBlock) -> None:
    store = Store()
    acker = Acker(store, claims)  # type: ignore[arg-type]
    ack = store.ack

    def latin(acks: Sequence[Ack]) -> Acked:
        if any(not (ack.error or "").isascii() for ack in acks):
            raise EngineRefused("no such character")
        return ack(acks)

    store.ack = latin  # type: ignore[method-assign]
    error = '{"message": "10 €"}'
    acker.put(Ack(1, 1, JobState.RETRYABLE, 1.0, 2.0, None, error, 17.0), claims.hold(1, 1))
    fill(acker, claims, [2])

    acker.run_once()

    stored = {ack.id: ack for ack in store.stored}
    assert stored[1] == Ack(1, 1, JobState.RETRYABLE, 1.0, 2.0, None, r'{"message": "10 \\u20ac"}', 17.0)
    assert claims.held == 0
