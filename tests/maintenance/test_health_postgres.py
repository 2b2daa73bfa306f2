"""What only PostgreSQL can tell of its health."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.connection import connect
from djqueue.models import Worker

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_who_holds_a_snapshot_is_named(engine):
    with connect("default", "report") as reader:
        reader.autocommit = False
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        pid = reader.info.backend_pid

        blockers = engine.health().tables.blockers

    [holder] = [one for one in blockers if "djqueue report" in one.name]
    assert holder.kind == "session"
    assert f"pid {pid}," in holder.name
    assert holder.age_seconds is not None


def test_a_worker_that_fell_silent_is_seen_and_serves_nothing(engine, me):
    Worker.objects.update(beat_at="2020-01-01T00:00Z")

    health = engine.health()

    assert health.workers[0].silent_seconds > 86_400
    assert [queue.queue for queue in health.queues] == []


def test_sizes_and_statistics_are_read(engine):
    health = engine.health().tables

    assert health.is_autovacuum_on is True
    assert None not in (health.dead_rows, health.table_bytes, health.history_bytes, health.notification_usage)


def test_autovacuum_that_was_switched_off_is_seen(engine):
    execute("ALTER TABLE djqueue_job SET (autovacuum_enabled = false)")
    try:
        assert engine.health().tables.is_autovacuum_on is False
    finally:
        execute("ALTER TABLE djqueue_job RESET (autovacuum_enabled)")


def test_a_database_that_does_not_answer_is_unhealthy(monkeypatch, capsys):
    def fail(self: object) -> None:
        raise DatabaseError("no such table")

    monkeypatch.setattr("djqueue.engines.postgres.engine.PostgresEngine.health", fail)

    with pytest.raises(SystemExit) as end:
        call_command("queuehealth", stdout=(out := StringIO()))

    assert end.value.code == 1
    assert "manage.py migrate" in out.getvalue()
