"""Whole workers: real processes, really killed, on each kind of store."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from djqueue.jobs.records import NewJob
from djqueue.jobs.states import JobState
from tests.backlog import ended, engine, jobs, live, states, stored
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import drain, eventually, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


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
        assert stored(later).state == JobState.SCHEDULED

    def test_only_the_named_queues_are_served(self) -> None:
        tasks.noop.using(queue_name="mail").enqueue()
        other = tasks.noop.using(queue_name="reports").enqueue()

        drain("--queues", "mail:2")

        assert states() == {"completed": 1, "available": 1}
        assert stored(other).state == JobState.AVAILABLE

    def test_a_finished_worker_leaves_no_trace(self) -> None:
        drain("--processes", "2")

        assert not engine().workers()

    def test_a_process_that_is_replaced_does_not_end_the_drain(self) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(10))

        drain("--max-jobs", "4", "--concurrency", "2")

        assert states() == {"completed": 10}

    def test_ten_thousand_jobs_through_two_processes_run_exactly_once(self) -> None:
        tasks.count.enqueue_many(((number,), {}) for number in range(10_000))

        drain("--processes", "2", "-v", "0")

        assert states() == {"completed": 10_000}
        finished = jobs()
        assert sorted(job.result for job in finished) == list(range(10_000))
        assert {job.attempt for job in finished} == {1}


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
        assert stored(result).state == JobState.DISCARDED
        assert result.status == "FAILED"
        assert [error["message"] for error in stored(result).errors] == ["never works"] * 2
        assert "state=discarded" in log

    def test_the_job_signals_do_what_they_say(self) -> None:
        snoozed = tasks.snooze_once.enqueue()
        cancelled = tasks.cancel_itself.enqueue()
        discarded = tasks.discard_itself.enqueue()
        retried = tasks.retry_once.enqueue()

        with worker() as running:
            eventually(lambda: ended() == 4, explain=lambda: running.log)

        for result in (snoozed, cancelled, discarded, retried):
            result.refresh()
        assert snoozed.return_value == 1  # the snooze spent no attempt
        assert retried.return_value == 2
        assert stored(cancelled).state == JobState.CANCELLED
        assert stored(cancelled).errors[0]["message"] == "not needed any more"
        assert stored(discarded).state == JobState.DISCARDED

    def test_no_exception_of_one_job_reaches_another(self) -> None:
        kinds = ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "Unprintable", "BaseException"]
        odd = [task.enqueue(kind) for kind in [*kinds, "Surrogate"] for task in (tasks.raise_odd, tasks.araise_odd)]
        good = [task.enqueue("fine", 0.2) for task in (tasks.nap, tasks.anap) for _ in range(3)]

        log = drain("--concurrency", "30")

        assert states() == {"discarded": len(odd), "completed": len(good)}, log
        assert {len(stored(result).errors) for result in odd} == {1}
        assert "worker.lost" not in log

    @pytest.mark.parametrize("kind", ["object", "nan", "nul", "large", "set"])
    def test_a_returned_value_that_cannot_be_stored_fails_the_job_with_a_reason(self, kind: str) -> None:
        result = tasks.return_odd.enqueue(kind)

        drain()

        assert stored(result).state == JobState.DISCARDED
        assert "returned value" in stored(result).errors[0]["message"]

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
        [inserted] = engine().insert([NewJob("nobody.knows.this")])

        log = drain()

        assert (stored(inserted).state, stored(inserted).attempt) == (JobState.SCHEDULED, 0)
        assert "job.unknown" in log
        assert "nobody.knows.this" in log

    def test_arguments_that_somebody_spoilt_set_only_their_own_job_aside(self) -> None:
        engine().insert([NewJob(tasks.noop.module_path, args='{"no": "list"}', max_attempts=1)])
        tasks.noop.enqueue()

        drain()

        assert states() == {"completed": 1, "scheduled": 1}


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
            eventually(lambda: ended() == 1, explain=lambda: running.log)

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
        assert {job.attempt for job in jobs(JobState.AVAILABLE)} == {0}
        assert not engine().workers()

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
        assert {job.attempt for job in jobs()} == {0}

    def test_two_signals_at_once_are_one_request(self) -> None:
        """A wrapper passes on what the terminal or the process group has sent already."""
        tasks.nap.enqueue("short", 3)

        with worker() as running:
            eventually(lambda: Entry.objects.exists(), explain=lambda: running.log)
            running.process.send_signal(signal.SIGINT)
            running.process.send_signal(signal.SIGTERM)
            assert running.wait(20) == 0, running.log

        assert states() == {"completed": 1}

    def test_sigterm_to_one_worker_process_replaces_it(self) -> None:
        with worker() as running:
            running.wait_for_log("worker.start")
            [pid] = running.child_pids()
            os.kill(pid, signal.SIGTERM)
            running.wait_for_log("worker.start", count=2)
            result = tasks.record.enqueue("after")
            eventually(lambda: ended(), explain=lambda: running.log)

        result.refresh()
        assert result.return_value == "after"

    def test_a_process_is_replaced_after_max_jobs(self) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(10))

        with worker("--max-jobs", "4", "--concurrency", "2") as running:
            eventually(lambda: ended() == 10, explain=lambda: running.log)

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
        assert sorted(job.attempt for job in jobs()) == [1, 1, 2, 2]
        lost = [error for job in jobs() for error in job.errors]
        assert [error["exception"] for error in lost] == ["djqueue.exceptions.WorkerLost"] * 2
        assert all("SIGKILL" in error["message"] for error in lost)

    def test_b20_a_job_that_kills_its_worker_comes_to_an_end_and_others_finish(self) -> None:
        poison = tasks.kill_worker.enqueue()
        tasks.record.enqueue_many(((str(number),), {}) for number in range(20))

        with worker("--concurrency", "1", "-v", "0") as running:
            eventually(lambda: ended() == 21, 60, lambda: running.log)

        assert (stored(poison).state, stored(poison).attempt) == (JobState.DISCARDED, 3)
        assert len(stored(poison).errors) == 3
        assert states() == {"completed": 20, "discarded": 1}

    def test_jobs_that_were_claimed_and_not_begun_go_back_unspent(self) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(200))
        tasks.kill_worker.using(priority=-1).enqueue()
        tasks.noop.using(priority=-2).enqueue_many(((), {}) for _ in range(200))

        with worker("--concurrency", "1", "-v", "0") as running:
            eventually(lambda: ended() == 401, 60, lambda: running.log)

        completed = jobs(JobState.COMPLETED)
        # At most what had ended, and was not stored yet, ran twice; nothing that only waited spent an attempt.
        assert {job.attempt for job in completed if job.task == tasks.noop.module_path} == {1}
        assert Counter(job.attempt for job in completed)[1] >= 390

    def test_ten_thousand_jobs_survive_a_kill_of_one_of_two_processes(self) -> None:
        tasks.count.enqueue_many(((number,), {}) for number in range(10_000))

        with worker("--processes", "2", "--drain", "-v", "0") as running:
            eventually(lambda: live() < 8_000, explain=lambda: running.log)
            os.kill(running.child_pids()[0], signal.SIGKILL)
            assert running.wait() == 0, running.log

        assert states() == {"completed": 10_000}
        assert sorted(job.result for job in jobs()) == list(range(10_000))

    def test_b04_a_worker_killed_with_its_supervisor_is_rescued_by_another(self) -> None:
        result = tasks.nap.enqueue("job", 5)
        with worker() as first:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: first.log)
            first.kill_all()

        with worker() as second:
            eventually(lambda: Entry.objects.count() == 2, 30, lambda: second.log)
            eventually(lambda: ended(), explain=lambda: second.log)

        result.refresh()
        assert result.return_value == "job"
        assert "worker.silent" in second.log
        # Whether it spent an attempt depends on whether a beat had noted its start: see test_lost_together.py.
        assert result.attempts in (1, 2)

    def test_b12_a_stopped_worker_whose_job_ended_elsewhere_changes_nothing(self) -> None:
        with worker() as stopped:
            stopped.wait_for_log("worker.start")
            result = tasks.nap.enqueue("zombie", 3)
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: stopped.log)
            os.killpg(stopped.process.pid, signal.SIGSTOP)
            try:
                with worker() as other:
                    eventually(lambda: ended(), 40, lambda: other.log)
                    finished = stored(result)
                    os.killpg(stopped.process.pid, signal.SIGCONT)
                    eventually(
                        lambda: "ack.stale" in stopped.log or "declared_dead" in stopped.log,
                        20,
                        lambda: stopped.log,
                    )
                    stopped.wait_for_log("worker.start", count=2)  # a successor under a new id
            finally:
                os.killpg(stopped.process.pid, signal.SIGCONT)

        again = stored(result)
        assert (again.state, again.attempt, again.claim) == ("completed", finished.attempt, finished.claim)
        assert again.finished_at == finished.finished_at
        result.refresh()
        assert result.return_value == "zombie"
        # The hooks and the log tell of an outcome that is stored, and of no other.
        assert (stopped.log + other.log).count("state=completed duration") == 1, stopped.log + other.log

    def test_a_worker_whose_supervisor_is_killed_finishes_what_runs_and_leaves(self) -> None:
        result = tasks.nap.enqueue("job", 3)

        with worker() as running:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: running.log)
            [pid] = running.child_pids()
            running.stop(signal.SIGKILL)
            running.wait(5)
            eventually(lambda: ended(), explain=lambda: running.log)
            eventually(lambda: not _is_alive(pid), explain=lambda: running.log)

        result.refresh()
        assert (result.return_value, result.attempts) == ("job", 1)
        assert not engine().workers()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
