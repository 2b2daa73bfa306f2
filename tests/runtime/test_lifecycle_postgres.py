"""What users can say about a task's life where jobs and data are in one database, with real workers."""

from __future__ import annotations

import time

import pytest
from django.utils import timezone

from djqueue import api
from djqueue.jobs.states import JobState
from djqueue.models import FinishedJob, Job
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import drain, eventually, worker

pytestmark = pytest.mark.django_db(transaction=True)


class TestTimeout:
    def test_an_sql_statement_ends_with_the_time_of_its_task(self) -> None:
        tasks.query_slowly.enqueue()
        started = time.monotonic()

        drain()

        assert time.monotonic() - started < 15
        assert FinishedJob.objects.get().errors[0]["exception"] == "djqueue.exceptions.TaskTimeout"

    def test_the_statement_limit_ends_with_the_job(self) -> None:
        tasks.tell_deadline.enqueue()
        after = tasks.statement_timeout.enqueue()

        drain("--concurrency", "1")

        after.refresh()
        assert after.return_value == "0"


class TestTransactional:
    def test_writes_and_completion_commit_together(self) -> None:
        result = tasks.write_once.enqueue("kept", "return")

        drain()

        result.refresh()
        assert result.return_value == "kept"
        assert Entry.objects.count() == 1

    def test_a_failed_attempt_leaves_nothing(self) -> None:
        tasks.write_once.enqueue("lost", "raise")

        drain()

        assert FinishedJob.objects.get().attempt == 2
        assert not Entry.objects.exists()

    def test_a_stale_claim_rolls_the_writes_back(self) -> None:
        tasks.write_once.enqueue("stale", "lose the claim")

        with worker() as running:
            running.wait_for_log("ack.stale")
            running.stop()
            running.wait()

        # The second attempt, if the worker got that far, loses its claim in the same way.
        assert not Entry.objects.exists()
        assert not FinishedJob.objects.exists()


class TestDeploySkew:
    def test_a_parked_job_says_why_and_runs_when_a_worker_knows_its_task(self) -> None:
        result = tasks.record.enqueue("known again")
        Job.objects.update(task="tests.ledger.tasks.not_there_yet")

        drain()

        job = Job.objects.get()
        assert "not_there_yet" in job.meta["parked"]
        Job.objects.update(task=tasks.record.module_path, scheduled_at=timezone.now())
        drain()
        result.refresh()
        assert result.return_value == "known again"


def test_a_worker_gives_up_after_a_configured_time_without_a_database() -> None:
    url = "postgresql://nobody@127.0.0.1:1/nothing"

    with worker("-v", "1", env={"DATABASE_URL": url, "DJQUEUE_GIVE_UP_AFTER": "2"}) as running:
        code = running.wait(60)

    assert code == 2, running.log
    assert "supervisor.gave_up" in running.log


class TestCancel:
    def test_b97_a_cancel_works_without_notifications_too(self) -> None:
        result = tasks.anap.enqueue("async", 60)

        with worker(env={"DJQUEUE_LISTEN": "0"}) as running:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: running.log)
            api.cancel(result, by="ada")
            eventually(lambda: FinishedJob.objects.exists(), 10, lambda: running.log)

        assert FinishedJob.objects.get().state == JobState.CANCELLED
