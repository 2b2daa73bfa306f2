from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.statements import sql
from djqueue.exceptions import EngineUnavailable
from djqueue.maintenance import lifeline as module
from djqueue.maintenance.leader import Leader
from djqueue.maintenance.lifeline import Lifeline, Lost
from djqueue.models import Worker
from djqueue.records import NewJob

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def lead(open_worker) -> Leader:
    one = Leader(open_worker(), uuid4())
    one.run_once()
    return one


def lifeline(open_worker, lead, silent=(), dead=()) -> Lifeline:
    return Lifeline(open_worker(), lead, silent=lambda: list(silent), dead=lambda: list(dead))


def test_a_claim_that_a_dead_worker_left_uncommitted_never_commits(engine, open_worker, me, lead):
    [job] = engine.insert([NewJob("tests.task")])
    with connect(engine.alias, f"worker {me}") as session:
        session.autocommit = False
        claimed = session.execute(sql("fetch"), {"queue": "default", "limit": 1, "worker": me, "now": None}).fetchall()
        assert claimed[0][0] == job.id

        one = lifeline(open_worker, lead)
        one.report(Lost(me, {}, "The worker process was killed."))
        one.run_once()

        with pytest.raises(psycopg.OperationalError):
            session.commit()
    assert engine.get(job.id).state == "available"


def test_the_connections_of_the_living_are_left_alone(engine, open_worker, me, register, lead):
    engine.insert([NewJob("tests.task"), NewJob("tests.task")])
    other, mine = open_worker(), open_worker()
    living = register()
    other.fetch("default", 1, living)
    mine.fetch("default", 1, me)

    one = lifeline(open_worker, lead, silent=[me])
    one.run_once()

    assert len(other.fetch("default", 1, living)) == 1
    with pytest.raises(EngineUnavailable):
        mine.fetch("default", 1, me)


def test_behind_a_pooler_no_connection_is_ended(engine, open_worker, me):
    mine = open_worker()
    mine.fetch("default", 1, me)

    with PostgresEngine(engine.alias, listen=False).open_worker() as pooled:
        assert pooled.disconnect([me]) == 0

    assert open_worker().disconnect([me]) == 1


def test_a_host_that_forbids_it_does_not_keep_jobs_from_being_rescued(engine, worker, me, monkeypatch, caplog):
    run = type(worker)._run

    def refuse(self, name, params):
        if name == "disconnect":
            raise psycopg.errors.InsufficientPrivilege("must be a member of the role")
        return run(self, name, params)

    monkeypatch.setattr(type(worker), "_run", refuse)

    assert worker.disconnect([me]) == 0
    assert "could not be ended" in caplog.text


def test_the_row_of_a_dead_worker_goes_when_nothing_of_it_is_left(engine, open_worker, worker, me, lead, monkeypatch):
    worker.bury([me])
    one = lifeline(open_worker, lead, dead=[me])
    one.run_once()
    assert Worker.objects.filter(pk=me).exists()

    monkeypatch.setattr(module, "AFTERMATH_SECONDS", 0)
    one.run_once()

    assert not Worker.objects.exists()
    assert one.last_run is not None
