"""What is true of the PostgreSQL engine alone: its notifications, locks and connections."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from djqueue.engines.postgres.connection import connect, role_of
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.statements import sql
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.records import Ack, NewJob
from djqueue.jobs.states import JobState
from djqueue.models import Job
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

QUIET = 0.3
LONG = 10.0
ONE = NewJob("tests.task")


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


@pytest.fixture
def notifications(engine: PostgresEngine) -> Iterator[Notifications]:
    with connect(engine.alias, "spy") as session:
        yield Notifications(session)


class Notifications:
    """Hears every notification of the installation, and marks no sleep."""

    def __init__(self, session: psycopg.Connection) -> None:
        self._session = session
        [channel] = session.execute(sql("listen")).fetchone()
        session.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))

    def heard(self, timeout: float = QUIET, stop_after: int | None = None) -> list[str]:
        return [notify.payload for notify in self._session.notifies(timeout=timeout, stop_after=stop_after)]


def terminate(role: str) -> int:
    """Terminate the sessions of this role in this database and return how many there were."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE application_name = %s AND datname = current_database()",
            [f"djqueue {role}"],
        )
        return cursor.fetchone()[0]


class TestNotifications:
    def test_when_nobody_sleeps_nobody_is_notified(self, engine, notifications, worker, me):
        engine.insert([ONE])
        with transaction.atomic():
            engine.insert([ONE])
        [job, _] = worker.fetch("default", 2, me)
        worker.ack([Ack(job.id, job.claim, JobState.AVAILABLE, is_spent=False)])
        worker.rescue([me])

        assert notifications.heard() == []

    def test_a_sleeper_who_got_up_is_not_notified(self, engine, notifications, listener):
        listener.mark(["default"])
        listener.unmark()
        assert notifications.heard() == ["default"]  # the mark was offered to others

        engine.insert([ONE])

        assert notifications.heard() == []

    def test_who_gives_up_no_mark_notifies_nobody(self, notifications, listener, open_listener):
        other = open_listener()
        listener.mark(["default"])
        other.mark(["default"])

        other.unmark()
        listener.unmark(["another"])

        assert notifications.heard() == []

    def test_a_sleeper_that_died_is_not_notified(self, engine, notifications, listener):
        listener.mark(["default"])
        terminate("listener")

        engine.insert([ONE])

        assert notifications.heard() == []

    def test_a_transaction_notifies_once_per_queue(self, engine, notifications, listener):
        """B64"""
        queue = "q" * 120
        listener.mark(["default", queue])

        with transaction.atomic():
            for _ in range(50):
                engine.insert([ONE, ONE._replace(queue=queue)])
                with transaction.atomic():
                    engine.insert([ONE])

        assert sorted(notifications.heard()) == ["default", queue]

    def test_many_transactions_register_one_hook_each(self, engine):
        for _ in range(2):
            with transaction.atomic():
                for _ in range(5):
                    engine.insert([ONE])
                assert len(connection.run_on_commit) == 1

    def test_a_hook_of_the_application_before_ours_keeps_it_one(self, engine):
        with transaction.atomic():
            transaction.on_commit(lambda: None)
            engine.insert([ONE])
            transaction.on_commit(lambda: None)
            engine.insert([ONE])

            assert len(connection.run_on_commit) == 3

    def test_under_manual_transaction_management_the_commit_notifies(self, engine, notifications, listener):
        listener.mark(["default"])
        transaction.set_autocommit(False)
        try:
            engine.insert([ONE])
            assert listener.wait(QUIET) == set()
            transaction.commit()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

        assert listener.wait(LONG) == {"default"}

    def test_under_manual_transaction_management_no_lock_keeps_a_sleeper_from_its_mark(self, engine, listener):
        transaction.set_autocommit(False)
        try:
            engine.insert([ONE])
            listener.mark(["default"])
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

        engine.insert([ONE])
        assert listener.wait(LONG) == {"default"}

    def test_a_failing_wake_up_does_not_fail_the_enqueue(self, engine, monkeypatch, caplog):
        monkeypatch.setattr("djqueue.engines.postgres.wakes.sql", lambda name: "SELECT nonsense")

        with caplog.at_level(logging.CRITICAL + 1, logger="djqueue"), transaction.atomic():
            [inside] = engine.insert([ONE])
        [outside] = engine.insert([ONE])

        assert engine.get(inside.id) is not None
        assert engine.get(outside.id) is not None

    def test_a_schema_with_the_longest_name_can_be_woken(self, engine):
        schema = "s" * 63
        with connection.cursor() as cursor, transaction.atomic():
            cursor.execute(f"CREATE SCHEMA {schema}")
            cursor.execute(f"SET LOCAL search_path = {schema}")
            cursor.execute(sql("listen"))
            [channel] = cursor.fetchone()
            cursor.execute(sql("notify"), {"queues": ["q" * 128]})
            transaction.set_rollback(True)

        assert len(channel.encode()) < 64

    def test_without_listen_nothing_is_marked_asked_or_notified(self, notifications, listener, me):
        engine = PostgresEngine("default", listen=False)
        with engine.open_listener() as deaf, Roles(engine) as worker:
            deaf.mark(["default"])
            listener.mark(["default"])
            engine.insert([ONE])
            worker.wake(["default"])

            assert notifications.heard() == []
            assert deaf.wait(0.01) == set()
            assert deaf._connection is None


class TestTable:
    @pytest.mark.parametrize("state", JobState)
    @pytest.mark.parametrize("is_ready", [True, False])
    def test_only_what_is_available_or_executes_has_a_ready_at_and_nothing_finished_is_live(
        self, engine, state, is_ready
    ):
        engine.insert([ONE])
        ready = {JobState.AVAILABLE, JobState.EXECUTING} if is_ready else {"scheduled", "retryable", "suspended"}

        with nullcontext() if state in ready else pytest.raises(IntegrityError, match="djqueue_job_ready"):
            Job.objects.update(state=state, ready_at=datetime.now(UTC) if is_ready else None)


class TestListenerConnection:
    def test_a_listener_whose_session_ended_says_so_and_connects_again(self, engine, listener, monkeypatch):
        monkeypatch.setattr("djqueue.engines.postgres.listener._RECONNECT_SECONDS", 0.0)
        listener.mark(["default"])
        assert terminate("listener") == 1

        started = time.monotonic()
        heard = listener.wait(LONG) | listener.wait(LONG)
        assert time.monotonic() - started < LONG / 2
        assert heard == {"default"}  # nobody could tell of a job meanwhile
        assert not listener.mark(["default"])
        engine.insert([ONE])

        assert listener.wait(LONG) == {"default"}

    def test_a_session_that_ends_before_the_mark_is_no_error(self, engine, listener, monkeypatch):
        monkeypatch.setattr("djqueue.engines.postgres.listener._RECONNECT_SECONDS", 0.0)
        listener.mark(["default"])
        terminate("listener")
        listener.unmark()

        listener.mark(["default"])
        engine.insert([ONE])

        assert listener.wait(LONG) == {"default"}

    def test_while_the_server_is_away_waiting_is_only_a_sleep(self, listener, monkeypatch):
        def refuse(alias: str, role: str, timeout: float) -> None:
            raise EngineUnavailable("refused")

        monkeypatch.setattr("djqueue.engines.postgres.listener.connect", refuse)

        assert listener.mark(["default"])  # a look more would be no use

        assert listener.wait(0.01) == set()
        listener.unmark()


class TestWorkerConnection:
    def test_a_session_that_ended_is_unavailable_once_and_then_replaced(self, engine, worker, me):
        engine.insert([ONE])
        assert worker.fetch("empty", 1, me) == []
        assert terminate(role_of(me)) == 1

        with pytest.raises(EngineUnavailable):
            worker.fetch("default", 1, me)

        assert len(worker.fetch("default", 1, me)) == 1

    def test_a_read_only_server_is_unavailable_and_left(self, engine, worker, me):
        engine.insert([ONE])
        assert worker.fetch("empty", 1, me) == []
        first = worker.fetcher._connection
        first.execute("SET default_transaction_read_only = on")

        with pytest.raises(EngineUnavailable):
            worker.fetch("default", 1, me)

        assert first.closed
        assert len(worker.fetch("default", 1, me)) == 1

    def test_the_isolation_level_of_the_role_does_not_reach_us(self, engine, open_worker, me):
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_database()")
            [database] = cursor.fetchone()
            cursor.execute(f"ALTER DATABASE \"{database}\" SET default_transaction_isolation = 'serializable'")
            cursor.execute(f'ALTER DATABASE "{database}" SET lock_timeout = 1')
            try:
                worker = open_worker()
                worker.fetch("default", 1, me)

                rows = worker.fetcher._connection.execute(
                    "SELECT current_setting('transaction_isolation'), current_setting('lock_timeout')"
                ).fetchall()
            finally:
                cursor.execute(f'ALTER DATABASE "{database}" RESET ALL')

        assert rows == [("read committed", "0")]

    def test_a_batch_is_stored_whole_or_not_at_all(self, engine, worker, me):
        engine.insert([ONE] * 2)
        a, b = worker.fetch("default", 2, me)
        good = Ack(a.id, a.claim, JobState.COMPLETED)
        bad = Ack(b.id, b.claim, JobState.RETRYABLE, error=r'{"m": "\u0000"}')

        with pytest.raises(EngineRefused):
            worker.ack([good, bad])

        assert engine.get(a.id).state == "executing"
        assert worker.ack([good]).accepted == {a.id}

    def test_it_can_be_closed_twice_and_used_again(self, worker, me):
        worker.close()
        worker.close()

        assert worker.fetch("default", 1, me) == []


class TestPreparedStatements:
    @staticmethod
    def fetch(worker, times: int) -> None:
        for _ in range(times):
            worker.fetch("default", 1, uuid4())

    @staticmethod
    def prepared(worker) -> list[str]:
        return [row[0] for row in worker._connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()]

    def test_a_worker_prepares_what_it_repeats(self, postgres):
        with Roles(postgres) as worker:
            self.fetch(worker, 8)

            assert any("SKIP LOCKED" in statement for statement in self.prepared(worker))
            [mode] = worker._connection.execute("SHOW plan_cache_mode").fetchone()
            assert mode == "force_custom_plan"

    def test_without_listen_there_may_be_a_pooler_and_nothing_is_prepared(self, transactional_db):
        with Roles(PostgresEngine("default", listen=False)) as worker:
            self.fetch(worker, 8)

            assert self.prepared(worker) == []

    @pytest.mark.parametrize("trouble", ["missing", "duplicate"])
    def test_a_pooler_that_cannot_keep_them_is_noticed_and_the_statement_run(self, postgres, caplog, trouble):
        with Roles(postgres) as worker:
            if trouble == "missing":
                self.fetch(worker, 8)
                worker._connection.pgconn.exec_(b"DEALLOCATE ALL")  # psycopg must not notice
            else:
                self.fetch(worker, 1)
                worker._connection.execute("PREPARE _pg3_0 AS SELECT 1", prepare=False)
            self.fetch(worker, 8)

            assert "continuing without" in caplog.text
            assert self.prepared(worker) == []
