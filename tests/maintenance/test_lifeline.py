from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

import pytest

from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import NewJob
from djqueue.maintenance import lifeline as module
from djqueue.maintenance.leader import Leader
from djqueue.maintenance.lifeline import Lifeline

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def lead(open_worker) -> Leader:
    one = Leader(open_worker(), uuid4())
    one.run_once()
    return one


def lifeline(open_worker, lead, silent=None, dead=()) -> Lifeline:
    return Lifeline(open_worker(), lead, silent=lambda: silent or {}, dead=lambda: list(dead))


def test_a_dead_workers_connection_is_ended_and_those_of_the_living_are_left_alone(
    engine, open_worker, me, register, lead
):
    engine.insert([NewJob("tests.task"), NewJob("tests.task")])
    other, mine = open_worker(), open_worker()
    living = register()
    other.fetch("default", 1, living)
    mine.fetch("default", 1, me)

    one = lifeline(open_worker, lead, silent={me: 0})
    one.run_once()

    assert len(other.fetch("default", 1, living)) == 1
    # Its connection has ended; and who is dead gets nothing on another one.
    with suppress(EngineUnavailable):
        assert mine.fetch("default", 1, me) == []


def test_a_worker_that_beat_after_it_was_seen_to_be_silent_keeps_its_jobs(engine, open_worker, worker, me, lead):
    [job] = engine.insert([NewJob("tests.task")])
    worker.fetch("default", 1, me)
    seen = {beat.worker: beat.beat for beat in worker.beat([])}
    one = lifeline(open_worker, lead, silent=seen)

    # It was stopped, and woke up after the leader's last look: it was told that all is well, and begins what it holds.
    assert not any(beat.is_dead for beat in worker.beat([me]))
    one.run_once()

    assert not any(beat.is_dead for beat in worker.beat([me]))
    assert engine.get(job.id).state == "executing"

    # It falls silent once more.
    lifeline(open_worker, lead, silent={me: seen[me] + 2}).run_once()

    assert all(beat.is_dead for beat in worker.beat([me]))
    assert engine.get(job.id).state == "available"


def test_a_dead_worker_is_forgotten_when_nothing_of_it_is_left(engine, open_worker, worker, me, lead, monkeypatch):
    worker.bury({me: None})
    one = lifeline(open_worker, lead, dead=[me])
    one.run_once()
    assert [one.id for one in engine.workers()] == [me]

    monkeypatch.setattr(module, "AFTERMATH_SECONDS", 0)
    one.run_once()

    assert engine.workers() == []
    assert one.last_run is not None
