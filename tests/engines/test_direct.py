"""Statements sent past Django's cursors: nobody can tell them from those that go through them."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import DataError, InternalError, OperationalError, connection, connections, transaction
from django.db.utils import IntegrityError
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.connection import connect
from djqueue.jobs.records import NewJob
from djqueue.models import Job
from tests.engines.sessions import NEW, executions, is_idle, prepared

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

LONG = 20.0


def on_a_thread(work: Any) -> Any:
    """Run on a thread with connections of its own, closed at its end."""

    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result(LONG)


class TestWhen:
    def test_the_first_insert_of_a_connection_prepares_nothing(self, postgres):
        connection.close()

        postgres.insert([NEW])

        assert prepared() == 0

    def test_the_statement_is_prepared_once(self, warm):
        for _ in range(5):
            warm.insert([NEW])

        assert prepared() == 1
        assert executions() == 6
        assert Job.objects.count() == 5

    def test_another_connection_prepares_for_itself(self, warm):
        connection.close()

        warm.insert([NEW])
        assert prepared() == 0
        warm.insert([NEW])
        assert prepared() == 1

    def test_a_closed_connection_is_forgotten(self, warm):
        used = weakref.ref(connection.connection)

        connection.close()
        gc.collect()

        assert used() is None

    def test_without_listen_nothing_is_prepared(self, transactional_db):
        connection.close()

        for _ in range(3):
            PostgresEngine("default", listen=False).insert([NEW])

        assert prepared() == 0

    def test_behind_a_pooler_nothing_is_prepared(self, postgres, monkeypatch):
        connection.close()
        # A pooler has told the client a number of its own.
        monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 4711)

        for _ in range(3):
            postgres.insert([NEW])

        assert prepared() == 0
        assert Job.objects.count() == 3

    def test_in_the_callers_transaction_nothing_is_prepared(self, warm, spy):
        before = executions()

        with transaction.atomic():
            for _ in range(3):
                warm.insert([NEW])
            assert spy.execute("SELECT count(*) FROM djqueue_job").fetchone() == (0,)
            transaction.set_rollback(True)

        assert executions() == before
        assert not Job.objects.exists()

    def test_nor_in_one_that_django_does_not_know_of(self, warm, spy):
        before = executions()
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            warm.insert([NEW])
            assert spy.execute("SELECT count(*) FROM djqueue_job").fetchone() == (0,)
            cursor.execute("ROLLBACK")

        assert executions() == before
        assert not Job.objects.exists()

    def test_nor_in_manual_transaction_management(self, warm, spy):
        transaction.set_autocommit(False)
        try:
            warm.insert([NEW])
            assert spy.execute("SELECT count(*) FROM djqueue_job").fetchone() == (0,)
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

        assert not Job.objects.exists()

    def test_nor_in_a_pipeline(self, warm):
        before = executions()

        with connection.connection.pipeline():
            warm.insert([NEW])

        assert executions() == before
        assert Job.objects.count() == 1


class TestWake:
    def test_a_sleeper_is_woken_by_a_prepared_statement(self, warm):
        queues = ["default", 'odd "\\{,}', "é"]
        with warm.open_listener() as listener:
            for queue in queues:
                for _ in range(2):
                    listener.mark([queue])
                    warm.insert([NEW._replace(queue=queue)])
                    assert listener.wait(LONG) == {queue}
                    listener.unmark()

        assert prepared() == 2

    def test_so_it_is_after_the_callers_transaction(self, warm):
        with warm.open_listener() as listener:
            listener.mark(["default"])
            with transaction.atomic():
                warm.insert([NEW])
            assert listener.wait(LONG) == {"default"}

        assert prepared() == 2


class TestWhat:
    """What is stored and answered is what Django's cursor would have stored and answered."""

    @pytest.mark.parametrize(
        "job",
        [
            NEW,
            NewJob(
                "tests.task",
                args='["ä\\"\\\\%s$1",1.5,null,{"b":"🙂"}]',
                kwargs='{"x":[true]}',
                queue="q:1",
                priority=-100,
                max_attempts=1,
                meta='{"context":{"language":"de"}}',
            ),
            NEW._replace(args=f'["{"x" * 250_000}"]'),
            NEW._replace(scheduled_at=datetime(2040, 2, 29, 1, 2, 3, 456789, UTC)),
            NEW._replace(scheduled_at=datetime(2, 1, 1, tzinfo=UTC), expires_at=datetime(9998, 12, 31, tzinfo=UTC)),
            NEW._replace(delay=timedelta(days=400, hours=1, microseconds=7), max_age=timedelta(seconds=0.5)),
            NEW._replace(delay=timedelta(days=-1, seconds=5)),
        ],
        ids=["plain", "odd texts", "large", "scheduled", "extreme times", "delayed", "delayed to the past"],
    )
    @pytest.mark.parametrize("style", ["postgres", "sql_standard"])
    def test_the_same_row_and_the_same_answer(self, warm, job, style):
        now = datetime(2030, 1, 2, 3, 4, 5, 678901, UTC)
        with connection.cursor() as cursor:
            cursor.execute(f"SET intervalstyle = {style}")
        before = executions()

        [answer] = warm.insert([job], now=now)
        assert executions() == before + 1
        with CaptureQueriesContext(connection):
            [expected] = warm.insert([job], now=now)

        with transaction.atomic():
            Job.objects.exists()
            [within] = warm.insert([job], now=now)

        for each in (answer, within):
            assert each._replace(id=0) == expected._replace(id=0)
            assert each.inserted_at.tzinfo is expected.inserted_at.tzinfo
        rows = list(Job.objects.order_by("id").values())
        assert [row.pop("id") for row in rows] == [answer.id, expected.id, within.id]
        assert rows[0] == rows[1] == rows[2]

    def test_the_time_is_told_in_the_zone_of_the_connection(self, postgres):
        with time_zone("Europe/Berlin"):
            for _ in range(3):
                [answer] = postgres.insert([NEW])
            with CaptureQueriesContext(connection):
                [expected] = postgres.insert([NEW])
            stored = Job.objects.get(id=answer.id).inserted_at

        assert str(answer.inserted_at.tzinfo) == "Europe/Berlin"
        assert answer.inserted_at.tzinfo is expected.inserted_at.tzinfo
        assert answer.inserted_at == stored

    @override_settings(USE_TZ=False)
    def test_without_time_zones_the_engine_tells_times_with_one_all_the_same(self, postgres):
        for _ in range(3):
            [answer] = postgres.insert([NEW])

        assert answer.inserted_at.tzinfo is not None
        assert abs(answer.inserted_at - datetime.now(UTC)) < timedelta(minutes=5)

    def test_a_nul_is_refused_and_not_taken_for_the_end(self, warm):
        with pytest.raises((DataError, ValueError)):
            warm.insert([NEW._replace(task="tests.task\0.more")])

        assert is_idle()
        assert not Job.objects.exists()

    def test_a_schema_that_is_searched_first_gets_the_job(self, warm):
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA tenant CREATE TABLE djqueue_job (LIKE public.djqueue_job INCLUDING ALL)")
            try:
                cursor.execute("SET search_path = tenant, public")
                warm.insert([NEW])
                cursor.execute("SELECT count(*) FROM tenant.djqueue_job")
                assert cursor.fetchone() == (1,)
                cursor.execute("SET search_path = public")
                warm.insert([NEW])
                cursor.execute("SELECT count(*) FROM tenant.djqueue_job")
                assert cursor.fetchone() == (1,)
            finally:
                cursor.execute("SET search_path = public")
                cursor.execute("DROP SCHEMA tenant CASCADE")
        assert Job.objects.count() == 1


class TestWhatGoesWrong:
    def test_a_refused_value_is_djangos_data_error(self, warm):
        with pytest.raises(DataError, match="too long"):
            warm.insert([NEW._replace(queue="q" * 300)])

        assert is_idle()
        warm.insert([NEW])
        assert Job.objects.count() == 1

    def test_a_commit_that_fails_is_an_error(self, warm, spy):
        spy.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE integrity_constraint_violation USING MESSAGE = 'not today'; END $$"
        )
        spy.execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON djqueue_job DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        try:
            with pytest.raises(IntegrityError, match="not today"):
                warm.insert([NEW])
        finally:
            spy.execute("DROP FUNCTION refuse CASCADE")

        assert is_idle()
        assert not Job.objects.exists()

    def test_a_lost_connection_is_djangos_operational_error(self, warm, spy):
        spy.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])

        with pytest.raises(OperationalError, match="terminating connection"):
            warm.insert([NEW])
        connections["default"].close_if_unusable_or_obsolete()
        warm.insert([NEW])

        assert Job.objects.count() == 1

    def test_with_health_checks_a_lost_connection_is_noticed_before(self, warm, spy, monkeypatch):
        monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
        connection.close()
        for _ in range(2):
            warm.insert([NEW])
        spy.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
        connections["default"].close_if_unusable_or_obsolete()  # as at the start of a request

        warm.insert([NEW])

        assert Job.objects.count() == 3

    def test_in_a_failed_transaction_it_fails_as_everything_does(self, warm):
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            with pytest.raises(DataError):
                cursor.execute("SELECT 1/0")
            with pytest.raises(InternalError, match="current transaction is aborted"):
                warm.insert([NEW])
            cursor.execute("ROLLBACK")

        warm.insert([NEW])
        assert Job.objects.count() == 1

    def test_in_a_failed_atomic_block_too(self, warm):
        with transaction.atomic():
            with pytest.raises(DataError), transaction.atomic(savepoint=False), connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
            with pytest.raises(transaction.TransactionManagementError):
                warm.insert([NEW])

        warm.insert([NEW])
        assert Job.objects.count() == 1

    @pytest.mark.parametrize("statement", ["DEALLOCATE ALL", "DISCARD ALL"])
    def test_statements_that_somebody_removed_are_prepared_again(self, warm, statement):
        with connection.cursor() as cursor:
            cursor.execute(statement)

        warm.insert([NEW])

        assert prepared() == 1
        assert Job.objects.count() == 1

    def test_so_are_those_from_before_a_migration(self, warm, spy):
        spy.execute("ALTER TABLE djqueue_job ALTER state TYPE varchar(20)")
        try:
            warm.insert([NEW])
        finally:
            spy.execute("ALTER TABLE djqueue_job ALTER state TYPE varchar(9)")
        warm.insert([NEW])

        assert Job.objects.count() == 2

    def test_a_name_that_is_taken_means_that_nothing_is_prepared(self, postgres):
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("PREPARE djqueue_1 AS SELECT 1")

        for _ in range(3):
            postgres.insert([NEW])

        assert Job.objects.count() == 3
        assert prepared() == 1
        connection.close()

    def test_ctrl_c_ends_the_wait_and_leaves_the_connection_usable(self, warm, spy):
        with locked_table():
            waiting = threading.Thread(target=interrupt_when_blocked, args=[connection.connection.info.backend_pid])
            waiting.start()
            with pytest.raises(KeyboardInterrupt):
                warm.insert([NEW])
            waiting.join()

        assert is_idle()
        warm.insert([NEW])
        assert Job.objects.count() == 1

    def test_threads_have_connections_of_their_own(self, warm):
        def work() -> int:
            for _ in range(20):
                warm.insert([NEW])
            return prepared()

        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(on_a_thread, work) for _ in range(4)]

        assert [answer.result() for answer in answers] == [1] * 4
        assert Job.objects.count() == 80

    def test_a_connection_shared_by_threads_takes_one_statement_at_a_time(self, warm):
        shared = connections["default"]
        shared.inc_thread_sharing()

        def work() -> None:
            connections["default"] = shared
            for _ in range(20):
                warm.insert([NEW])

        try:
            with ThreadPoolExecutor(4) as pool:
                for answer in [pool.submit(work) for _ in range(4)]:
                    answer.result()
        finally:
            shared.dec_thread_sharing()

        assert len(set(Job.objects.values_list("id", flat=True))) == 80


@contextmanager
def time_zone(name: str) -> Iterator[None]:
    def forget() -> None:
        connection.close()
        for attribute in ("timezone", "timezone_name"):
            vars(connections["default"]).pop(attribute, None)

    with mock.patch.dict(connection.settings_dict, {"TIME_ZONE": name}):
        forget()
        yield
    forget()


@contextmanager
def locked_table() -> Iterator[None]:
    with connect("default", "locker") as session, session.transaction():
        session.execute("LOCK TABLE djqueue_job")
        yield


def interrupt_when_blocked(pid: int) -> None:
    with connect("default", "looker") as session:
        for _ in range(2000):
            row = session.execute("SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()
            if row == ("Lock",):
                break
            threading.Event().wait(0.005)  # the server tells nobody when a session begins to wait
    os.kill(os.getpid(), signal.SIGINT)
