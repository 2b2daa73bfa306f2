"""Queues with delivery="at_most_once", with real workers."""

from __future__ import annotations

import signal
from uuid import uuid4

import pytest
from django.db import transaction

from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import Ack, NewJob, WorkerInfo
from djqueue.jobs.states import JobState
from djqueue.runtime.acker import Acker
from djqueue.runtime.claims import ClaimBlock
from tests.backlog import ended, engine, jobs, live, states, stored
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import drain, eventually, worker
from tests.roles import Roles

pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=["djqueue", "tests.ledger"]),
    pytest.mark.usefixtures("store"),
]


@pytest.fixture(autouse=True)
def queue_named_once(monkeypatch):
    monkeypatch.setenv("DJQUEUE_ONCE", "1")


def once(task):
    return task.using(queue_name="once")


def test_jobs_run_and_their_history_is_written():
    result = once(tasks.record).enqueue("a")
    other = once(tasks.arecord).enqueue("b")

    drain("--queues", "once")

    result.refresh()
    other.refresh()
    assert (result.return_value, other.return_value) == ("a", "b")
    assert (result.attempts, len(result.worker_ids)) == (1, 1)


@pytest.mark.parametrize("task", [tasks.fail_with, tasks.snooze_once, tasks.retry_once, tasks.return_odd])
def test_what_would_run_again_is_discarded(task):
    arguments = {tasks.fail_with: ["ValueError"], tasks.return_odd: ["object"]}.get(task, [])
    result = once(task).enqueue(*arguments)

    drain("--queues", "once")

    assert (stored(result).state, stored(result).attempt, len(stored(result).errors)) == ("discarded", 1, 1)


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_transactional_task_commits_with_its_history():
    once(tasks.write_once).enqueue("kept", "return")
    once(tasks.write_once).enqueue("lost", "raise")

    drain("--queues", "once")

    assert states() == {"completed": 1, "discarded": 1}
    assert [entry.label for entry in Entry.objects.all()] == ["kept"]


def test_a_job_of_a_killed_worker_never_runs_again():
    once(tasks.nap).enqueue("killed", 60)

    with worker("--queues", "once") as running:
        eventually(Entry.objects.exists)
        assert not live()
        running.kill_all()
    once(tasks.record).enqueue("after")
    drain("--queues", "once")

    assert sorted(entry.label for entry in Entry.objects.all()) == ["after", "killed"]
    assert states() == {"completed": 1}


def test_nor_does_one_whose_child_died_beside_a_living_supervisor():
    once(tasks.kill_worker).enqueue()

    with worker("--queues", "once") as running:
        running.wait_for_log("worker.lost")
        once(tasks.record).enqueue("after")
        eventually(ended)

    assert [job.task for job in jobs()] == ["tests.ledger.tasks.record"]


def test_a_worker_takes_no_more_than_it_can_start():
    once(tasks.nap).enqueue_many((("job", 5), {}) for _ in range(6))

    with worker("--queues", "once", "--concurrency", "2") as running:
        eventually(lambda: Entry.objects.count() == 2, explain=lambda: (Entry.objects.count(), states(), running.log))
        assert live() == 4


def test_a_job_that_is_interrupted_by_the_stop_of_its_worker_has_run():
    result = once(tasks.nap).enqueue("stopped", 60)

    with worker("--queues", "once") as running:
        eventually(Entry.objects.exists)
        running.stop(signal.SIGTERM)
        running.stop(signal.SIGTERM)
        running.wait()

    assert (stored(result).state, stored(result).errors[0]["message"]) == (
        "discarded",
        "The job was interrupted, and its queue delivers at most once.",
    )


@pytest.fixture
def me():
    """A worker that is registered and has no process."""
    id = uuid4()
    with Roles(engine()) as one:
        one.register([WorkerInfo(id=id, name="test", hostname="here", pid=1, queues={"once": None}, concurrency=10)])
    return id


@pytest.fixture
def claims():
    block = ClaimBlock.create()
    yield block
    block.close()


def back(job):
    return Ack(job.id, job.claim, JobState.AVAILABLE, is_spent=False, taken=job)


def test_t15_a_job_that_was_put_back_is_not_put_back_again_after_another_has_run_it(me, claims, monkeypatch):
    engine().insert([NewJob("a.task", queue="once")])
    with Roles(engine()) as first, Roles(engine()) as second:
        [job] = first.take("once", 1, me)
        ack = first.ack

        def lose_the_answer(acks):
            monkeypatch.setattr(first, "ack", ack)
            ack(acks)
            [again] = second.take("once", 1, me)
            second.ack([Ack(again.id, again.claim, JobState.COMPLETED, taken=again)])
            raise EngineUnavailable("The answer was lost.")

        monkeypatch.setattr(first, "ack", lose_the_answer)
        acker = Acker(first, claims)
        acker.put(back(job), claims.hold(job.id, job.claim))

        with pytest.raises(EngineUnavailable):
            acker.run_once()
        acker.put(Ack(job.id + 1, 1, JobState.COMPLETED), claims.hold(job.id + 1, 1))
        acker.run_once()

    assert claims.held == 0
    assert live() == 0
    assert states() == {"completed": 1}


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_t15_a_job_that_was_put_back_counts_as_such_although_nobody_can_be_woken(me, monkeypatch):
    engine().insert([NewJob("a.task", queue="once")])
    with Roles(engine()) as worker:
        [job] = worker.take("once", 1, me)

        def away(queues):
            raise EngineUnavailable("Away.")

        monkeypatch.setattr(worker.fetcher, "wake", away)

        assert worker.ack([back(job)]).accepted == {job.id}
    assert states() == {"available": 1}


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_t52_a_job_that_is_put_back_does_not_wait_for_a_transaction_that_takes_its_key(me):
    engine().insert([NewJob("a.task", queue="once", unique_key="k")])
    with Roles(engine()) as worker:
        [job] = worker.take("once", 1, me)
        with transaction.atomic():
            [other] = engine().insert([NewJob("a.task", queue="once", unique_key="k")])

            assert worker.ack([back(job)]).accepted == {job.id}

            assert engine().get(job.id).state is JobState.AVAILABLE
    assert engine().get(job.id).unique_key is None
    assert engine().get(other.id).unique_key == "k"
