"""A single job on PostgreSQL: one statement, and nobody else's work in it."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import DataError, connection, transaction
from django.test.utils import CaptureQueriesContext

from djqueue.engines.postgres import PostgresEngine
from djqueue.jobs.records import NewJob
from djqueue.models import Job

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])
NEW = NewJob("tests.task")


@pytest.fixture
def watcher(transactional_db: None):
    """Another session of the same database."""
    keys = ("dbname", "host", "port", "user", "password")
    params = {key: value for key, value in connection.get_connection_params().items() if key in keys}
    with psycopg.connect(**params, autocommit=True) as other:
        yield other


def statements(queries: CaptureQueriesContext) -> list[str]:
    return [query["sql"] for query in queries.captured_queries]


@contextmanager
def server_side_binding():
    connection.close()
    with mock.patch.dict(connection.settings_dict["OPTIONS"], {"server_side_binding": True}):
        yield
        connection.close()


class TestOneStatement:
    def test_outside_of_a_transaction_it_is_one(self, postgres):
        with CaptureQueriesContext(connection) as queries:
            [job] = postgres.insert([NEW])

        [statement] = statements(queries)
        assert statement.startswith("INSERT")
        assert "pg_try_advisory_xact_lock_shared" in statement
        assert Job.objects.get().pk == job.id

    def test_it_is_committed_and_the_connection_is_idle_again(self, postgres, watcher):
        postgres.insert([NEW])

        assert watcher.execute("SELECT count(*) FROM djqueue_job").fetchone() == (1,)
        assert connection.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def test_the_asker_keeps_no_lock(self, postgres, watcher):
        postgres.insert([NEW])

        pid = connection.connection.info.backend_pid
        sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s"
        assert watcher.execute(sql, [pid]).fetchone() == (0,)

    def test_in_an_atomic_block_the_callers_work_is_not_committed(self, postgres, watcher):
        with transaction.atomic():
            postgres.insert([NEW])
            assert watcher.execute("SELECT count(*) FROM djqueue_job").fetchone() == (0,)
            transaction.set_rollback(True)

        assert not Job.objects.exists()

    def test_nor_in_a_transaction_that_django_does_not_know_of(self, postgres, watcher):
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            postgres.insert([NEW])
            assert watcher.execute("SELECT count(*) FROM djqueue_job").fetchone() == (0,)
            cursor.execute("ROLLBACK")

        assert not Job.objects.exists()

    def test_nor_in_manual_transaction_management(self, postgres, watcher):
        transaction.set_autocommit(False)
        try:
            postgres.insert([NEW])
            assert watcher.execute("SELECT count(*) FROM djqueue_job").fetchone() == (0,)
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

        assert not Job.objects.exists()

    def test_a_failed_insert_leaves_no_transaction_behind(self, postgres):
        with pytest.raises(DataError):
            postgres.insert([NEW._replace(queue="q" * 300)])

        assert connection.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        postgres.insert([NEW])
        assert Job.objects.count() == 1

    def test_a_wake_that_fails_does_not_make_the_caller_enqueue_twice(self, postgres, caplog):
        listener = postgres.open_listener()
        listener.mark(["default"])

        def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            return execute("SELECT 1/0" if "pg_notify" in sql else sql, params, many, context)

        with listener, connection.execute_wrapper(refuse):
            [job] = postgres.insert([NEW])

        assert Job.objects.get().pk == job.id
        assert "Could not wake workers" in caplog.text

    def test_with_server_side_binding_it_is_one_too(self, postgres):
        with server_side_binding(), CaptureQueriesContext(connection) as queries:
            postgres.insert([NEW])

        assert len(statements(queries)) == 1
        assert Job.objects.count() == 1

    @pytest.mark.parametrize("listen", [True, False])
    def test_a_lock_is_held_until_the_commit_only_where_somebody_may_sleep(self, transactional_db, at_commit, listen):
        with at_commit("SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"):
            PostgresEngine("default", listen=listen).insert([NEW])

        assert at_commit.seen() == ["1" if listen else "0"]

    def test_a_job_for_later_asks_for_no_lock(self, postgres, at_commit):
        with at_commit("SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"):
            postgres.insert([NEW._replace(delay=timedelta(hours=1))])

        assert at_commit.seen() == ["0"]
