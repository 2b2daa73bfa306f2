from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest

from djqueue.engines.protocol import STAGE, Engine
from djqueue.jobs.records import Ack, NewJob
from djqueue.jobs.states import JobState
from djqueue.maintenance import stager as module
from djqueue.maintenance.stager import Stager
from tests.processes import eventually
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

LONG = 10.0
HOUR = timedelta(hours=1)


@pytest.fixture
def stager(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stager]:
    """One whose own look comes too late for every test: only a wake-up or its timer helps."""
    monkeypatch.setattr(module, "LOOK_SECONDS", LONG)
    one = Stager(Roles(engine), engine.open_listener(), is_leader=lambda: True)
    yield one
    one.on_stop()


@contextmanager
def asleep(stager: Stager) -> Iterator[Callable[[], float]]:
    """Let it mark and look, then sleep in a thread; yields a function that returns how long it slept."""
    stager.run_once()

    def sleep() -> float:
        began = time.monotonic()
        stager.run_once()
        return time.monotonic() - began

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(sleep)
        time.sleep(0.1)  # it is asleep by then; were it not, the mark stands already
        yield lambda: future.result(LONG * 2)


def state(engine: Engine, id: int) -> str:
    job = engine.get(id)
    assert job is not None
    return job.state


def test_it_sleeps_until_the_next_job_is_due_and_stages_it(engine, stager):
    [job] = engine.insert([NewJob("tests.task", delay=timedelta(seconds=0.3))])

    stager.start()
    eventually(lambda: state(engine, job.id) == "available", LONG / 2)

    stager.stop()
    assert stager.join(LONG)
    stored = engine.get(job.id)
    assert stored.ready_at - stored.scheduled_at < timedelta(seconds=1)


def test_it_is_woken_by_a_job_that_is_due_before_its_next_look(engine, stager):
    engine.insert([NewJob("tests.task", delay=HOUR)])

    with asleep(stager) as slept:
        engine.insert([NewJob("tests.task", delay=timedelta(seconds=0.2))])
        seconds = slept()

    assert seconds < LONG / 2


def test_a_job_that_is_due_later_wakes_nobody(engine, listener):
    listener.mark([STAGE])

    engine.insert([NewJob("tests.task", delay=timedelta(seconds=30)), NewJob("tests.task", delay=HOUR)])

    assert listener.wait(0.3) == set()


@pytest.mark.parametrize("state", [JobState.RETRYABLE, JobState.SCHEDULED])
def test_a_retry_or_snooze_that_is_due_soon_wakes_it(engine, worker, me, listener, state):
    engine.insert([NewJob("tests.task"), NewJob("tests.task")])
    soon, late = worker.fetch("default", 2, me)
    listener.mark([STAGE])

    worker.ack([Ack(late.id, late.claim, state, delay=60.0)])
    assert listener.wait(0.3) == set()
    worker.ack([Ack(soon.id, soon.claim, state, delay=0.2)])

    assert listener.wait(LONG) == {STAGE}


@pytest.mark.parametrize("order", ["insert mark look", "mark insert look", "mark look insert"])
def test_in_every_order_it_knows_of_the_earlier_job_or_is_woken(engine, worker, listener, order):
    engine.insert([NewJob("tests.task", delay=HOUR)])
    steps = {
        "insert": lambda: engine.insert([NewJob("tests.task", delay=timedelta(seconds=1))]),
        "mark": lambda: listener.mark([STAGE]),
        "look": lambda: worker.stage(),
    }

    results = {step: steps[step]() for step in order.split()}

    assert results["look"].next_in <= 1 or listener.wait(LONG) == {STAGE}


def test_who_does_not_lead_stages_nothing(engine, open_worker, open_listener, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    leads = [True, True, False]
    stager = Stager(open_worker(), open_listener(), is_leader=lambda: leads.pop(0))
    stager.run_once()
    stager.run_once()

    [job] = engine.insert([NewJob("tests.task", delay=timedelta(microseconds=1))])
    time.sleep(0.01)  # it is due by the store's clock
    stager.run_once()

    assert state(engine, job.id) == "scheduled"


def test_a_stop_ends_its_sleep(engine, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 60)
    stager = Stager(Roles(engine), engine.open_listener(), is_leader=lambda: True)
    stager.start()
    time.sleep(0.2)  # asleep by then, and if not, the interruption is remembered

    stager.stop()

    assert stager.join(LONG)
