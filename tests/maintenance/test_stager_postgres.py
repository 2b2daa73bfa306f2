"""The stager beside transactions, marks and dead entries of PostgreSQL."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db import connection, transaction

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.protocol import STAGE
from djqueue.jobs.flows import Settled
from djqueue.jobs.records import NewJob, Staged
from djqueue.maintenance import stager as module
from djqueue.maintenance.stager import Stager
from tests.maintenance.test_stager import HOUR, LONG, state

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


def marks() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        return cursor.fetchone()[0]


def test_a_job_that_became_urgent_during_a_long_transaction_wakes_it(engine, listener):
    listener.mark([STAGE])

    with transaction.atomic():
        engine.insert([NewJob("tests.task", delay=timedelta(seconds=1.8))])
        time.sleep(0.5)  # the transaction lasts: 1.3 seconds are left at its commit
        assert listener.wait(0) == set()

    assert listener.wait(LONG) == {STAGE}


def test_a_rollback_does_not_wake_it(engine, listener):
    listener.mark([STAGE])

    with transaction.atomic():
        engine.insert([NewJob("tests.task", delay=timedelta(seconds=0.1))])
        transaction.set_rollback(True)

    assert listener.wait(0.3) == set()


@pytest.mark.parametrize("order", ["commit mark look ask", "mark commit look ask", "mark commit ask look",
                                   "mark look commit ask", "commit mark ask look", "commit ask mark look"])  # fmt: skip
def test_in_every_order_it_knows_of_the_earlier_job_or_is_woken(engine, worker, listener, order):
    engine.insert([NewJob("tests.task", delay=HOUR)])
    silent = PostgresEngine(engine.alias, listen=False)
    steps = {
        "commit": lambda: silent.insert([NewJob("tests.task", delay=timedelta(seconds=1))]),
        "mark": lambda: listener.mark([STAGE]),
        "look": lambda: worker.stage(),
        "ask": lambda: worker.wake([STAGE]),
    }

    results = {step: steps[step]() for step in order.split()}

    assert results["look"].next_in <= 1 or listener.wait(LONG) == {STAGE}


def test_who_does_not_lead_stages_nothing_and_marks_nothing(engine, open_worker, open_listener, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    leads = [True, True, False]
    stager = Stager(open_worker(), open_listener(), is_leader=lambda: leads.pop(0))
    stager.run_once()
    stager.run_once()
    assert marks() == 1

    [job] = engine.insert([NewJob("tests.task", delay=timedelta(microseconds=1))])
    time.sleep(0.01)  # it is due by the store's clock
    stager.run_once()

    assert state(engine, job.id) == "scheduled"
    assert marks() == 0


def test_short_delays_in_crowds_notify_nobody(open_listener):
    class Scripted:
        next_in = [5.0, 0.005]

        def stage(self, limit):
            return Staged(1, ["default"], self.next_in.pop(0))

        def settle(self, limit):
            return Settled()

    stager = Stager(Scripted(), open_listener(), is_leader=lambda: True)
    stager.run_once()
    assert marks() == 1

    stager.run_once()  # one is due in a moment: waited for without a mark

    assert marks() == 0


def test_beside_dead_entries_it_goes_on_where_it_was_and_finds_late_ones_when_told(postgres, open_worker, monkeypatch):
    monkeypatch.setattr("djqueue.engines.postgres.maintainer._SLOW_STAGE", -1)
    worker = open_worker().maintainer
    with worker.open_listener() as listener:
        listener.mark([STAGE])
        worker.stage()  # slow, as it seems: the next ones begin here
        [late, due] = postgres.insert([NewJob("tests.task", delay=timedelta(microseconds=n)) for n in (1, 2)])
        with connection.cursor() as cursor:
            cursor.execute("UPDATE djqueue_job SET scheduled_at = now() - interval '1 minute' WHERE id = %s", [late.id])
        time.sleep(0.01)  # both are due by the store's clock

        assert worker.stage().count == 1
        assert (state(postgres, late.id), state(postgres, due.id)) == ("scheduled", "available")
        assert worker.stage().next_in is None

        worker.wake([STAGE])
        assert listener.wait(LONG) == {STAGE}
        assert worker.stage().count == 1


def test_without_being_told_it_finds_late_ones_with_the_next_full_look(postgres, open_worker, monkeypatch):
    monkeypatch.setattr("djqueue.engines.postgres.maintainer._SLOW_STAGE", -1)
    worker = open_worker().maintainer
    worker.stage()
    [late] = postgres.insert([NewJob("tests.task", delay=timedelta(microseconds=1))])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE djqueue_job SET scheduled_at = now() - interval '1 minute'")
    assert worker.stage().count == 0

    worker._stage_all_at = 0.0  # a second has passed

    assert worker.stage().count == 1
    assert state(postgres, late.id) == "available"


def test_a_job_that_cannot_be_staged_does_not_keep_back_the_others(postgres, open_worker, caplog):
    jobs = postgres.insert([NewJob("tests.task", args=f"[{n}]", delay=timedelta(microseconds=1)) for n in range(20)])
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE djqueue_job ADD CONSTRAINT no_seven CHECK (args <> '[7]' OR state <> 'available')")
    try:
        worker = open_worker()
        time.sleep(0.01)  # all are due by the store's clock

        counts = [worker.stage().count, worker.stage().count]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE djqueue_job DROP CONSTRAINT no_seven")

    assert counts == [19, 0]
    assert [job.id for job in jobs if state(postgres, job.id) == "scheduled"] == [jobs[7].id]
    assert f"Cannot stage job {jobs[7].id}" in caplog.text


def test_what_the_ends_of_jobs_in_workflows_left_behind_is_settled_once_a_second(open_listener):
    class Counting:
        settled = 0

        def stage(self, limit):
            return Staged(1, [], 0.0)

        def settle(self, limit):
            self.settled += 1
            return Settled(is_full=self.settled == 1)

    counting = Counting()
    stager = Stager(counting, open_listener(), is_leader=lambda: True)
    for _ in range(4):
        stager.run_once()

    assert counting.settled == 2
