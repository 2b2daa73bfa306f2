"""Supervisor and worker die together, as when a container is ended: nobody is left who knows what had begun."""

from __future__ import annotations

import msgpack
import pytest

from djqueue.jobs.states import JobState
from tests.backlog import ended, engine, stored
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import eventually, worker

pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=["djqueue", "tests.ledger"]),
    pytest.mark.usefixtures("store"),
]

NEIGHBOURS = 20


def test_t48_neighbours_that_never_started_run_and_the_job_that_kills_its_group_ends() -> None:
    tasks.noop.enqueue_many(((), {}) for _ in range(300))
    with worker("--concurrency", "1") as running:
        # Many short ones, so that the lane prefetches; and all of the rest in one fetch.
        eventually(lambda: ended() == 300, 60, lambda: running.log)
        engine().pause("default")
        poison = tasks.kill_group.enqueue()
        neighbours = [tasks.record.using(max_attempts=1).enqueue(f"neighbour {number}") for number in range(NEIGHBOURS)]
        engine().resume("default")
        running.process.wait(60)
    assert stored(poison).state is JobState.EXECUTING
    assert sum(stored(result).state is JobState.EXECUTING for result in neighbours) > 1, "Nothing was prefetched."

    for _ in range(2):  # the first death leaves it open what had begun, the second does not
        with worker("--concurrency", "1") as running:
            eventually(
                lambda: running.process.poll() is not None or stored(poison).state.is_final, 90, lambda: running.log
            )
    with worker("--concurrency", "1") as running:
        eventually(
            lambda: all(stored(result).state.is_final for result in [poison, *neighbours]), 90, lambda: running.log
        )

    assert {stored(result).state for result in neighbours} == {JobState.COMPLETED}
    assert {stored(result).attempt for result in neighbours} == {1}
    assert Entry.objects.filter(label__startswith="neighbour").count() == NEIGHBOURS
    job = stored(poison)
    assert (job.state, job.attempt) == (JobState.DISCARDED, 1)
    assert job.errors[-1]["exception"] == "djqueue.exceptions.WorkerLost"


def test_t48_what_has_run_for_a_while_has_spent_its_attempt() -> None:
    long = tasks.nap.using(max_attempts=1).enqueue("long", 60)
    with worker() as running:
        eventually(Entry.objects.exists, 60, lambda: running.log)
        if "postgres" in engine().store:
            eventually(lambda: "begun" in stored(long).meta, 30, lambda: running.log)
        else:
            eventually(lambda: _is_noted(int(long.id)), 30, lambda: running.log)
        running.kill_all()
    with worker() as running:
        eventually(lambda: stored(long).state.is_final, 60, lambda: running.log)
        assert running.log.count("worker.silent") == 1, running.log

    assert (stored(long).state, stored(long).attempt) == (JobState.DISCARDED, 1)
    assert Entry.objects.count() == 1


def test_t48_async_jobs_that_were_lost_run_again() -> None:
    results = [tasks.anap.enqueue(f"lost {number}", 1) for number in range(NEIGHBOURS)]
    with worker() as running:
        eventually(Entry.objects.exists, 60, lambda: running.log)
        running.kill_all()
    assert any(stored(result).state is JobState.EXECUTING for result in results)

    with worker() as running:
        eventually(lambda: all(stored(result).state.is_final for result in results), 60, lambda: running.log)

        assert "Unexpected error" not in running.log
    assert {stored(result).state for result in results} == {JobState.COMPLETED}


def _is_noted(id: int) -> bool:

    text = engine().client.command("HGET", "{djqueue}:executing", str(id))  # type: ignore[attr-defined]
    return text is not None and bool(msgpack.unpackb(text)[-1] & 8)
