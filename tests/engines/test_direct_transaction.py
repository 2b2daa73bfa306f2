"""In the caller's transaction the insert goes past Django's cursors too, once the transaction has begun."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, connection, transaction
from django.test.utils import CaptureQueriesContext

from djqueue.engines.postgres import PostgresEngine, direct, single
from djqueue.models import Job
from tests.engines.sessions import NEW, is_idle

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture(autouse=True)
def sent(monkeypatch):
    """The statements that went past the cursors."""
    sent: list[str] = []
    genuine = direct.run_in_transaction

    def run(connection: Any, name: str, *args: Any) -> Any:
        answer = genuine(connection, name, *args)
        if answer is not None:
            sent.append(name)
        return answer

    monkeypatch.setattr(single, "run_in_transaction", run)
    return sent


def test_it_joins_the_transaction_that_has_begun(postgres, spy, sent):
    with transaction.atomic():
        postgres.insert([NEW])  # begins it
        postgres.insert([NEW])
        postgres.insert([NEW._replace(unique_key="k")])
        assert spy.execute("SELECT count(*) FROM djqueue_job").fetchone() == (0,)

    assert sent == ["insert_one", "insert_one_unique"]
    assert Job.objects.count() == 3


def test_a_rollback_takes_it_away(postgres, sent):
    with transaction.atomic():
        Job.objects.exists()
        postgres.insert([NEW])
        transaction.set_rollback(True)

    assert sent == ["insert_one"]
    assert not Job.objects.exists()


def test_so_does_that_of_a_savepoint(postgres, sent):
    with transaction.atomic():
        postgres.insert([NEW])
        with transaction.atomic():
            postgres.insert([NEW])
            transaction.set_rollback(True)
        postgres.insert([NEW])

    assert sent == ["insert_one"] * 2
    assert Job.objects.count() == 2


def test_an_error_ends_the_transaction_as_any_does(postgres, sent):
    def work() -> None:
        with transaction.atomic():
            Job.objects.exists()
            postgres.insert([NEW._replace(queue="q" * 300)])

    with pytest.raises(DataError, match="too long"):
        work()

    assert is_idle()
    postgres.insert([NEW])
    assert Job.objects.count() == 1


def test_an_error_within_a_savepoint_ends_that_only(postgres):
    with transaction.atomic():
        postgres.insert([NEW])
        with pytest.raises(DataError), transaction.atomic():
            postgres.insert([NEW._replace(queue="q" * 300)])
        postgres.insert([NEW])

    assert Job.objects.count() == 2


def test_somebodys_deallocate_is_no_error_of_the_transaction(warm):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("DEALLOCATE ALL")
        warm.insert([NEW])

    assert Job.objects.count() == 1


def test_who_watches_sees_it(postgres, sent):
    with transaction.atomic():
        Job.objects.exists()
        with CaptureQueriesContext(connection) as queries:
            postgres.insert([NEW])

    assert sent == []
    assert queries.captured_queries[0]["sql"].startswith("INSERT INTO djqueue_job")


def test_the_lock_of_sleepers_is_not_held(postgres, spy, sent):
    with transaction.atomic():
        Job.objects.exists()
        postgres.insert([NEW])
        locks = spy.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s",
            [connection.connection.info.backend_pid],
        ).fetchone()

    assert sent == ["insert_one"]
    assert locks == (0,)


def test_without_listen_it_goes_through_the_cursor(transactional_db, sent):
    engine = PostgresEngine("default", listen=False)
    with transaction.atomic():
        engine.insert([NEW])
        engine.insert([NEW])

    assert sent == []
