"""Whole workers: real processes, really killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from djqueue.models import FinishedJob, Job, Worker
from djqueue.records import NOBODY
from djqueue.states import JobState
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import drain, eventually, states, worker

pytestmark = pytest.mark.django_db(transaction=True)


class TestDrain:
    def test_sync_and_async_jobs_end_completed_with_their_results(self) -> None:
        results = [tasks.record.enqueue("sync"), tasks.arecord.enqueue("async")]

        drain()

        for result in results:
            result.refresh()
        assert [result.return_value for result in results] == ["sync", "async"]
        assert all(result.started_at <= result.finished_at for result in results)
        assert sorted(Entry.objects.values_list("label", flat=True)) == ["async", "sync"]

    def test_an_empty_queue_is_drained_at_once(self) -> None:
        assert "worker.stop" in drain()

    def test_a_job_that_a_job_enqueues_is_run_too(self) -> None:
        tasks.enqueue_another.enqueue(3)

        drain()

        assert states() == {"completed": 4}

    def test_due_jobs_that_nobody_staged_are_run_and_later_ones_are_left(self) -> None:
        tasks.noop.using(run_after=timedelta(seconds=0.2)).enqueue()
        later = tasks.noop.using(run_after=timedelta(hours=1)).enqueue()
        time.sleep(0.3)  # the first is due by the database's clock

        drain()

        assert states() == {"completed": 1, "scheduled": 1}
        assert Job.objects.get().pk == int(later.id)

    def test_only_the_named_queues_are_served(self) -> None:
        tasks.noop.using(queue_name="mail").enqueue()
        tasks.noop.using(queue_name="reports").enqueue()

        drain("--queues", "mail:2")

        assert Job.objects.get().queue == "reports"

    def test_a_finished_worker_leaves_no_row(self) -> None:
        drain("--processes", "2")

        assert not Worker.objects.exists()

    def test_a_process_that_is_replaced_does_not_end_the_drain(self) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(10))

        drain("--max-jobs", "4", "--concurrency", "2")

        assert states() == {"completed": 10}

    def test_ten_thousand_jobs_through_two_processes_run_exactly_once(self) -> None:
        tasks.count.enqueue_many(((number,), {}) for number in range(10_000))

        drain("--processes", "2", "-v", "0")

        assert states() == {"completed": 10_000}
        assert sorted(FinishedJob.objects.values_list("result", flat=True)) == list(range(10_000))
        assert set(FinishedJob.objects.values_list("attempt", flat=True)) == {1}


class TestOutcomes:
    def test_a_failing_job_is_retried_until_it_succeeds(self) -> None:
        result = tasks.fail_until.enqueue(3)

        drain()

        result.refresh()
        assert result.return_value == 3
        assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
        assert "attempt 2 fails" in result.errors[1].traceback
        assert len(result.worker_ids) == 3

    def test_a_job_that_always_fails_is_discarded_after_its_attempts(self) -> None:
        result = tasks.fail.enqueue("never works")

        log = drain()

        result.refresh()
        assert FinishedJob.objects.get().state == JobState.DISCARDED
        assert result.status == "FAILED"
        assert [error["message"] for error in FinishedJob.objects.get().errors] == ["never works"] * 2
        assert "state=discarded" in log

    def test_the_steering_exceptions_do_what_they_say(self) -> None:
        snoozed = tasks.snooze_once.enqueue()
        cancelled = tasks.cancel_itself.enqueue()
        discarded = tasks.discard_itself.enqueue()
        retried = tasks.retry_once.enqueue()

        with worker() as running:
            eventually(lambda: FinishedJob.objects.count() == 4, explain=lambda: running.log)

        for result in (snoozed, cancelled, discarded, retried):
            result.refresh()
        assert snoozed.return_value == 1  # the snooze spent no attempt
        assert retried.return_value == 2
        assert FinishedJob.objects.get(pk=cancelled.id).state == JobState.CANCELLED
        assert FinishedJob.objects.get(pk=cancelled.id).errors[0]["message"] == "not needed any more"
        assert FinishedJob.objects.get(pk=discarded.id).state == JobState.DISCARDED

    def test_no_exception_of_one_job_reaches_another(self) -> None:
        kinds = ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "Unprintable", "BaseException"]
        odd = [task.enqueue(kind) for kind in [*kinds, "Surrogate"] for task in (tasks.raise_odd, tasks.araise_odd)]
        good = [task.enqueue("fine", 0.2) for task in (tasks.nap, tasks.anap) for _ in range(3)]

        log = drain("--concurrency", "30")

        assert Counter(FinishedJob.objects.values_list("state", flat=True)) == {
            "discarded": len(odd),
            "completed": len(good),
        }, log
        assert all(
            len(errors) == 1
            for errors in FinishedJob.objects.filter(pk__in=[o.id for o in odd]).values_list("errors", flat=True)
        )
        assert "worker.lost" not in log

    @pytest.mark.parametrize("kind", ["object", "nan", "nul", "large", "set"])
    def test_a_returned_value_that_cannot_be_stored_fails_the_job_with_a_reason(self, kind: str) -> None:
        tasks.return_odd.enqueue(kind)

        drain()

        job = FinishedJob.objects.get()
        assert job.state == JobState.DISCARDED
        assert "returned value" in job.errors[0]["message"]

    def test_the_context_tells_what_the_result_will_tell(self) -> None:
        result = tasks.describe.enqueue(1, word="x")

        drain()

        result.refresh()
        assert result.return_value == {
            "attempt": 1,
            "id": result.id,
            "status": "RUNNING",
            "args": [1],
            "kwargs": {"word": "x"},
            "workers": 1,
        }

    def test_a_job_of_an_unknown_task_waits_without_spending_an_attempt(self) -> None:
        job_id = int(tasks.noop.enqueue().id)
        Job.objects.update(task="nobody.knows.this")

        log = drain()

        job = Job.objects.get(pk=job_id)
        assert (job.state, job.attempt) == (JobState.SCHEDULED, 0)
        assert "job.unknown" in log
        assert "nobody.knows.this" in log

    def test_arguments_that_somebody_spoilt_fail_only_their_own_job(self) -> None:
        spoilt = int(tasks.noop.enqueue().id)
        Job.objects.filter(pk=spoilt).update(args={"no": "list"}, max_attempts=1)
        tasks.noop.enqueue()

        drain()

        assert states() == {"completed": 1, "discarded": 1}


class TestTransactions:
    def test_a_sleeping_worker_runs_what_is_committed_and_never_what_is_rolled_back(self) -> None:
        with worker() as running:
            running.wait_for_log("worker.start")
            with transaction.atomic():
                tasks.group_exists.enqueue(Group.objects.create(name="rolled back").pk)
                transaction.set_rollback(True)
            with transaction.atomic():
                committed = tasks.group_exists.enqueue(Group.objects.create(name="committed").pk)
                time.sleep(0.5)  # a worker that saw the job before the commit would not find the group
            eventually(lambda: FinishedJob.objects.count() == 1, explain=lambda: running.log)

        committed.refresh()
        assert committed.return_value is True
        assert states() == {"completed": 1}


class TestStopping:
    def test_sigterm_lets_what_runs_end_and_gives_back_the_rest(self) -> None:
        for number in range(4):
            tasks.nap.enqueue(f"job {number}", 1)

        with worker("--concurrency", "2") as running:
            eventually(lambda: Entry.objects.count() == 2, explain=lambda: running.log)
            running.stop()
            assert running.wait() == 0

        assert states() == {"completed": 2, "available": 2}
        assert set(Job.objects.values_list("attempt", flat=True)) == {0}
        assert not Worker.objects.exists()

    def test_a_second_signal_gives_back_what_runs_with_its_attempt(self) -> None:
        tasks.nap.enqueue("long", 60)
        tasks.anap.enqueue("async long", 60)

        with worker() as running:
            eventually(lambda: Entry.objects.count() == 2, explain=lambda: running.log)
            running.stop(signal.SIGINT)
            running.wait_for_log("worker.draining")
            running.stop(signal.SIGINT)
            assert running.wait(20) == 0, running.log

        assert states() == {"available": 2}
        assert set(Job.objects.values_list("attempt", flat=True)) == {0}

    def test_sigterm_to_one_worker_process_replaces_it(self) -> None:
        with worker() as running:
            running.wait_for_log("worker.start")
            [pid] = running.child_pids()
            os.kill(pid, signal.SIGTERM)
            running.wait_for_log("worker.start", count=2)
            result = tasks.record.enqueue("after")
            eventually(lambda: FinishedJob.objects.exists(), explain=lambda: running.log)

        result.refresh()
        assert result.return_value == "after"

    def test_a_process_is_replaced_after_max_jobs(self) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(10))

        with worker("--max-jobs", "4", "--concurrency", "2") as running:
            eventually(lambda: FinishedJob.objects.count() == 10, explain=lambda: running.log)

        assert max(Counter(Entry.objects.values_list("pid", flat=True)).values()) <= 4


class TestDeath:
    def test_b01_the_jobs_of_a_killed_worker_run_again_elsewhere(self) -> None:
        tasks.nap.enqueue_many((("job", 1.5), {}) for _ in range(4))

        with worker("--processes", "2", "--concurrency", "2") as running:
            eventually(lambda: Entry.objects.count() == 4, explain=lambda: running.log)
            os.kill(running.child_pids()[0], signal.SIGKILL)
            killed = time.monotonic()
            eventually(lambda: Entry.objects.count() == 6, explain=lambda: running.log)
            back = time.monotonic() - killed
            eventually(lambda: states() == {"completed": 4}, explain=lambda: running.log)

        assert back < 5, running.log  # its neighbour takes over as soon as its own jobs have ended
        assert sorted(FinishedJob.objects.values_list("attempt", flat=True)) == [1, 1, 2, 2]
        lost = [error for errors in FinishedJob.objects.values_list("errors", flat=True) for error in errors]
        assert [error["exception"] for error in lost] == ["djqueue.exceptions.WorkerLost"] * 2
        assert all("SIGKILL" in error["message"] for error in lost)

    def test_b20_a_job_that_kills_its_worker_comes_to_an_end_and_others_finish(self) -> None:
        poison = tasks.kill_worker.enqueue()
        tasks.record.enqueue_many(((str(number),), {}) for number in range(20))

        with worker("--concurrency", "1", "-v", "0") as running:
            eventually(lambda: FinishedJob.objects.count() == 21, 60, lambda: running.log)

        job = FinishedJob.objects.get(pk=poison.id)
        assert (job.state, job.attempt) == (JobState.DISCARDED, 3)
        assert len(job.errors) == 3
        assert FinishedJob.objects.filter(state=JobState.COMPLETED).count() == 20

    def test_jobs_that_were_claimed_and_not_begun_go_back_unspent(self) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(200))
        tasks.kill_worker.using(priority=-1).enqueue()
        tasks.noop.using(priority=-2).enqueue_many(((), {}) for _ in range(200))

        with worker("--concurrency", "1", "-v", "0") as running:
            eventually(lambda: FinishedJob.objects.count() == 401, 60, lambda: running.log)

        attempts = Counter(FinishedJob.objects.filter(state="completed").values_list("attempt", flat=True))
        # At most what had ended, and was not stored yet, ran twice; nothing that only waited spent an attempt.
        assert set(FinishedJob.objects.filter(task=tasks.noop.module_path).values_list("attempt", flat=True)) == {1}
        assert attempts[1] >= 390

    def test_ten_thousand_jobs_survive_a_kill_of_one_of_two_processes(self) -> None:
        tasks.count.enqueue_many(((number,), {}) for number in range(10_000))

        with worker("--processes", "2", "--drain", "-v", "0") as running:
            eventually(lambda: FinishedJob.objects.count() > 2_000, explain=lambda: running.log)
            os.kill(running.child_pids()[0], signal.SIGKILL)
            assert running.wait() == 0, running.log

        assert states() == {"completed": 10_000}
        assert sorted(FinishedJob.objects.values_list("result", flat=True)) == list(range(10_000))

    def test_b04_a_worker_killed_with_its_supervisor_is_rescued_by_another(self) -> None:
        result = tasks.nap.enqueue("job", 5)
        with worker() as first:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: first.log)
            first.kill_all()

        with worker() as second:
            eventually(lambda: Entry.objects.count() == 2, 30, lambda: second.log)
            eventually(lambda: FinishedJob.objects.exists(), explain=lambda: second.log)

        result.refresh()
        assert result.return_value == "job"
        assert "worker.silent" in second.log
        assert result.attempts == 2

    def test_a_worker_whose_supervisor_is_killed_finishes_what_runs_and_leaves(self) -> None:
        result = tasks.nap.enqueue("job", 3)

        with worker() as running:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: running.log)
            [pid] = running.child_pids()
            running.stop(signal.SIGKILL)
            running.wait(5)
            eventually(lambda: FinishedJob.objects.exists(), explain=lambda: running.log)
            eventually(lambda: not _is_alive(pid), explain=lambda: running.log)

        result.refresh()
        assert (result.return_value, result.attempts) == ("job", 1)
        assert not Worker.objects.exists()


class TestConnections:
    def test_b53_no_connection_outlives_its_worker_and_an_idle_one_keeps_few(self) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(300))

        with worker("--concurrency", "8", "-v", "0") as running:
            eventually(lambda: FinishedJob.objects.count() == 300, explain=lambda: running.log)
            # Six services of the supervisor and its register, the listener of one, and three of the worker: one each.
            eventually(lambda: _backends() <= 11, 10, lambda: _backends())
            running.stop()
            assert running.wait() == 0, running.log

        eventually(lambda: _backends() == 0, 5, lambda: _backends())

    def test_b10_a_worker_outlives_the_end_of_all_its_connections(self) -> None:
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


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _backends() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])
