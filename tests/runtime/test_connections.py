"""What workers do to the sessions of PostgreSQL."""

from __future__ import annotations

import pytest
from django.db import connection

from djqueue.jobs.records import NOBODY
from djqueue.models import FinishedJob, Job
from tests.ledger import tasks
from tests.processes import eventually, worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_b53_no_connection_outlives_its_worker_and_an_idle_one_keeps_few() -> None:
    tasks.record.enqueue_many(((str(number),), {}) for number in range(300))

    with worker("--concurrency", "8", "-v", "0") as running:
        eventually(lambda: FinishedJob.objects.count() == 300, explain=lambda: running.log)
        # Six services of the supervisor and its register, the listener of one, and three of the worker: one each.
        eventually(lambda: _backends() <= 11, 10, lambda: _backends())
        running.stop()
        assert running.wait() == 0, running.log

    eventually(lambda: _backends() == 0, 5, lambda: _backends())


def test_b10_a_worker_outlives_the_end_of_all_its_connections() -> None:
    with worker() as running:
        running.wait_for_log("worker.start")
        first = tasks.record.enqueue("before")
        eventually(lambda: FinishedJob.objects.count() == 1, explain=lambda: running.log)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        second = tasks.record.enqueue("after")
        eventually(lambda: FinishedJob.objects.count() == 2, explain=lambda: running.log)

    first.refresh()
    second.refresh()
    assert second.return_value == "after"
    assert Job.objects.filter(state="executing").count() == 0


def test_nobody_is_the_sentinel_of_a_job_that_was_never_claimed() -> None:
    tasks.noop.enqueue()

    assert Job.objects.get().attempted_by == NOBODY


def _backends() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])
