"""Passes along the history of PostgreSQL: locks and plans."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.connection import connect
from djqueue.jobs.records import PruneRule
from djqueue.jobs.states import JobState
from djqueue.models import FinishedJob

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

RULE = PruneRule(JobState.COMPLETED, timedelta(days=1))


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


def fill(count: int, state: str = "completed", age: str = "2 days", queue: str = "default") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO djqueue_finishedjob (id, state, queue, task, finished_at)"
            " SELECT nextval('djqueue_job_id_seq'), %s, %s, 'tests.task', now() - %s::interval + n * interval '1 us'"
            " FROM generate_series(1, %s) AS n",
            [state, queue, age, count],
        )


def test_a_job_that_somebody_works_on_is_left_for_the_next_pass(worker):
    fill(3)
    with connect("default", "test") as other, other.transaction():
        other.execute("SELECT 1 FROM djqueue_finishedjob ORDER BY id LIMIT 1 FOR UPDATE")
        assert worker.prune([RULE]).count == 2

    assert worker.prune([RULE]).count == 1


def test_each_step_walks_the_index_however_long_the_history(worker):
    fill(20_000, age="20 days", state="discarded")
    fill(100)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE djqueue_finishedjob")
    rules = [PruneRule(JobState.DISCARDED, timedelta(days=30)), RULE]
    step = worker.prune(rules, limit=1000)
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")

    steps = 1
    while step.place is not None:
        step = worker.prune(rules, place=step.place, limit=1000)
        steps += 1

    assert steps == 21
    assert FinishedJob.objects.count() == 20_000
