"""The event loop goes on, whatever an async task does to it; the numbers are those of the table of trials."""

from __future__ import annotations

import pytest

from djqueue.jobs.states import JobState
from tests.backlog import ended, jobs, states, stored
from tests.ledger import hostile, sessions, tasks
from tests.ledger.models import Entry
from tests.processes import drain, eventually, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


def test_t64_nothing_that_an_async_task_starts_ends_the_loop_or_costs_a_neighbour_an_attempt() -> None:
    with worker("--concurrency", "20") as running:
        neighbours = [tasks.anap.enqueue(f"neighbour {number}", 3) for number in range(3)]
        eventually(lambda: Entry.objects.count() == 3, explain=lambda: running.log)
        attacks = {way: hostile.attack_loop.enqueue(way) for way in hostile.WAYS}
        eventually(lambda: ended() >= len(attacks), explain=lambda: running.log)
        later = [tasks.find.enqueue() for _ in range(20)]
        later.append(sessions.lent_run_and_write.enqueue("SELECT 1", "by a lent thread"))
        eventually(lambda: ended() == len(attacks) + 24, explain=lambda: running.log)
        assert len(running.child_pids()) == 1

    assert {job.attempt for job in jobs()} == {1}, running.log
    for way, result in attacks.items():
        fails = hostile.WAYS[way][1]
        assert stored(result).state == (JobState.DISCARDED if fails else JobState.COMPLETED), way
    for result in (*neighbours, *later):
        assert stored(result).state == JobState.COMPLETED
    assert "worker.lost" not in running.log
    assert "loop.interrupted by=SystemExit" in running.log
    assert "loop.interrupted by=KeyboardInterrupt" in running.log


def test_t64_a_drain_ends_after_an_async_task_has_stopped_the_loop() -> None:
    for way in hostile.WAYS:
        hostile.attack_loop.enqueue(way)
    tasks.find.enqueue_many(((), {}) for _ in range(50))

    drain("--concurrency", "4")

    failing = sum(fails for _, fails in hostile.WAYS.values())
    assert states() == {"completed": 50 + len(hostile.WAYS) - failing, "discarded": failing}


def test_t64_a_worker_whose_loop_is_beyond_repair_is_replaced() -> None:
    broken = hostile.break_loop.enqueue()

    with worker("--concurrency", "4", "-v", "0") as running:
        eventually(lambda: ended() == 1, 40, lambda: running.log)
        later = tasks.find.enqueue()
        eventually(lambda: ended() == 2, 40, lambda: running.log)

    assert (stored(broken).state, stored(broken).attempt) == (JobState.DISCARDED, 2)
    assert stored(later).state == JobState.COMPLETED
    assert "worker.broken" in running.log
