"""What a dead worker leaves under way in PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.maintainer import PostgresMaintainer
from djqueue.engines.postgres.statements import sql
from djqueue.exceptions import EngineDenied
from djqueue.jobs.records import NewJob
from djqueue.maintenance.lifeline import Lost
from tests.maintenance.test_lifeline import lead, lifeline
from tests.roles import Roles

__all__ = ["lead"]

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


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


def test_behind_a_pooler_no_connection_is_ended(engine, open_worker, me):
    mine = open_worker()
    mine.fetch("default", 1, me)

    with Roles(PostgresEngine(engine.alias, listen=False)) as pooled:
        assert pooled.disconnect([me]) == 0

    assert open_worker().disconnect([me]) == 1


def test_a_host_that_forbids_it_does_not_keep_jobs_from_being_rescued(engine, worker, me, monkeypatch, caplog):
    run = PostgresMaintainer.run

    def refuse(self, name, params):
        if name == "disconnect":
            raise EngineDenied("must be a member of the role")
        return run(self, name, params)

    monkeypatch.setattr(PostgresMaintainer, "run", refuse)

    assert worker.disconnect([me]) == 0
    assert "Could not close the connections" in caplog.text
