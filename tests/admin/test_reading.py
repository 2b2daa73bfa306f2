from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction

from djqueue.engines.postgres.reading import ReadTooSlow, queue_names, time_limit
from tests.admin.conftest import make_job


def limit_now() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return str(cursor.fetchone()[0])


def sleep() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(5)")


@pytest.mark.django_db(transaction=True)
def test_a_read_that_takes_too_long_is_stopped_and_leaves_no_limit_behind() -> None:
    with pytest.raises(ReadTooSlow), time_limit("default", timedelta(milliseconds=20)):
        sleep()

    assert limit_now() == "0"
    with time_limit("default", timedelta(seconds=3)):
        assert limit_now() == "3s"
    assert limit_now() == "0"


@pytest.mark.django_db
def test_within_a_transaction_the_callers_limit_comes_back_and_its_work_stays() -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = '7s'")
        job = make_job()
        with time_limit("default", timedelta(seconds=3)):
            assert limit_now() == "3s"
        assert limit_now() == "7s"
        with pytest.raises(ReadTooSlow), time_limit("default", timedelta(milliseconds=20)):
            sleep()
        assert limit_now() == "7s"
        job.refresh_from_db()


@pytest.mark.django_db
def test_an_error_of_the_block_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError), time_limit("default", timedelta(seconds=1)):
        _ = 1 / 0


@pytest.mark.django_db
def test_queues_with_jobs_to_run_are_named_in_order() -> None:
    for queue in ("mail", "default", "mail", "a-b"):
        make_job(queue=queue)
    make_job(queue="later", state="scheduled")

    assert queue_names("default") == ["a-b", "default", "mail"]
    assert queue_names("default", limit=2) == ["a-b", "default"]
