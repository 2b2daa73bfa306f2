"""What users can say about a task's life, with real workers."""

from __future__ import annotations

import signal
import time
from datetime import timedelta
from datetime import timezone as fixed_timezone
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone, translation

from djqueue import api
from djqueue.jobs.states import JobState
from tests.backlog import ended, states, stored
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import drain, eventually, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


class TestTimeout:
    def test_an_async_task_is_cancelled_at_its_timeout(self) -> None:
        result = tasks.overstay_async.enqueue("async", 60)

        drain()

        job = stored(result)
        assert job.state == JobState.DISCARDED
        assert job.errors[0]["exception"] == "djqueue.exceptions.TaskTimeout"

    def test_a_task_that_looks_at_its_context_can_end_in_good_order(self) -> None:
        result = tasks.obey.enqueue("sync")

        drain()

        result.refresh()
        assert "longer than its timeout" in result.return_value

    def test_the_context_knows_the_deadline(self) -> None:
        result = tasks.tell_deadline.enqueue()

        drain()

        result.refresh()
        assert 29 < result.return_value < 31

    def test_b81_threads_that_cannot_be_stopped_do_not_stop_the_queue(self) -> None:
        stuck = [tasks.overstay.enqueue(f"stuck {number}", 60) for number in range(4)]

        with worker("--concurrency", "4") as running:
            eventually(lambda: Entry.objects.count() == 4, explain=lambda: running.log)
            fifth = tasks.record.enqueue("fifth")
            eventually(lambda: stored(fifth).state == JobState.COMPLETED, 15, lambda: running.log)
            eventually(lambda: ended() == 5, 15, lambda: running.log)

        for result in stuck:
            job = stored(result)
            assert job.state == JobState.DISCARDED
            assert job.errors[0]["exception"] == "djqueue.exceptions.TaskTimeout"

    def test_the_neighbours_of_a_stuck_task_may_end_before_its_process_does(self) -> None:
        neighbour = tasks.nap.enqueue("neighbour", 6)
        tasks.overstay.enqueue("stuck", 60)

        with worker("--concurrency", "2") as running:
            eventually(lambda: ended() == 2, 40, lambda: running.log)

        neighbour.refresh()
        assert (neighbour.return_value, neighbour.attempts) == ("neighbour", 1)

    def test_t71_what_returns_after_its_deadline_has_completed_however_late(self) -> None:
        neighbour = tasks.nap.enqueue("neighbour", 7)  # keeps the process while the second one is stuck
        late, stuck = tasks.overstay.enqueue("late", 1.5), tasks.overstay.enqueue("stuck", 5)
        swallowing = tasks.swallow_cancellation.enqueue()

        with worker("--concurrency", "4") as running:
            eventually(lambda: ended() == 4, 40, lambda: running.log)

        assert "job.stuck" in running.log
        for result in (neighbour, late, stuck, swallowing):
            assert (stored(result).state, stored(result).attempt) == (JobState.COMPLETED, 1), running.log
        assert running.log.count("job.late") == 3

    def test_t71_what_raises_after_its_deadline_has_timed_out(self) -> None:
        result = tasks.fail_late.enqueue()

        drain()

        assert stored(result).errors[0]["exception"] == "djqueue.exceptions.TaskTimeout"
        assert "KeyError" in stored(result).errors[0]["traceback"]


class TestAge:
    def test_a_job_that_does_not_begin_in_time_is_cancelled(self) -> None:
        late = tasks.record.using(max_age=0.05).enqueue("late")
        fresh = tasks.record.using(max_age=timedelta(hours=1)).enqueue("fresh")
        time.sleep(0.1)  # by the database's clock it is too late now

        drain()

        job = stored(late)
        assert (job.state, job.attempt, job.started_at) == (JobState.CANCELLED, 0, None)
        assert "expired" in job.errors[0]["message"]
        fresh.refresh()
        assert fresh.return_value == "fresh"

    def test_a_thousand_async_jobs_that_come_too_late_are_cancelled_in_one_go(self) -> None:
        tasks.arecord.using(max_age=0.001).enqueue_many(((str(number),), {}) for number in range(1000))
        time.sleep(0.1)  # by the database's clock it is too late now

        drain()

        assert states() == {"cancelled": 1000}


class TestRetryRules:
    def test_only_the_named_exceptions_are_retried(self) -> None:
        retried = tasks.fail_with.enqueue("ValueError")
        discarded = tasks.fail_with.enqueue("KeyError")
        hopeless = tasks.never_retry_key_errors.enqueue()

        drain()

        assert [stored(result).attempt for result in (retried, discarded, hopeless)] == [3, 1, 1]


class TestSurroundings:
    def test_language_and_time_zone_travel_with_the_job(self) -> None:
        with translation.override("de"), timezone.override("Australia/Lord_Howe"):
            elsewhere = tasks.surroundings.enqueue()
        here = tasks.surroundings.enqueue()

        drain("--concurrency", "1")

        elsewhere.refresh()
        here.refresh()
        assert elsewhere.return_value == {"language": "de", "time_zone": "Australia/Lord_Howe"}
        assert here.return_value == {"language": "en-us", "time_zone": "UTC"}

    def test_t20_time_zones_without_a_name_travel_with_the_job(self) -> None:
        zones = [timezone.get_fixed_timezone(-210), ZoneInfo("Etc/GMT-3"), fixed_timezone(timedelta(hours=5))]
        results = []
        for zone in zones:
            with timezone.override(zone):
                results.append(tasks.local_offset.enqueue())

        log = drain("--concurrency", "1")

        for result in results:
            result.refresh()
        assert [result.return_value for result in results] == ["-0330", "+0300", "+0500"]
        assert "Traceback" not in log

    def test_a_transaction_that_a_job_left_open_does_not_reach_the_next_job(self) -> None:
        tasks.leave_a_transaction_open.enqueue()
        result = tasks.record.enqueue("committed")

        drain("--concurrency", "1")

        result.refresh()
        assert result.return_value == "committed"
        assert list(Entry.objects.values_list("label", flat=True)) == ["committed"]


class TestRecycling:
    def test_a_process_that_grew_too_large_is_replaced(self) -> None:
        first = tasks.hoard.enqueue(300)

        with worker("--max-rss", "250", "--concurrency", "1") as running:
            running.wait_for_log("worker.recycling")
            running.wait_for_log("worker.start", count=2)
            second = tasks.hoard.enqueue(1)
            eventually(lambda: ended() == 2, explain=lambda: running.log)

        first.refresh()
        second.refresh()
        assert first.return_value != second.return_value

    def test_a_process_that_is_too_old_is_replaced(self) -> None:
        with worker("--max-age", "1") as running:
            running.wait_for_log("worker.start", count=2)

        assert "worker.recycling" in running.log

    def test_t49_a_recycle_waits_for_its_jobs_and_another_process_takes_over_the_queue(self) -> None:
        long = tasks.nap.using(max_attempts=1, priority=10).enqueue("long", 12)

        env = {"DJQUEUE_SHUTDOWN_TIMEOUT": "1"}
        with worker("--max-age", "2", "--concurrency", "1", env=env) as running:
            running.wait_for_log("worker.recycling")
            tasks.record.enqueue("after")
            eventually(lambda: Entry.objects.filter(label="after").exists(), 30, lambda: running.log)
            eventually(lambda: ended() == 2, explain=lambda: running.log)

        assert (stored(long).state, stored(long).attempt) == (JobState.COMPLETED, 1)
        assert Entry.objects.filter(label="long").count() == 1
        assert "job.interrupted" not in running.log

    def test_t49_a_stop_ends_a_recycle_that_waits(self) -> None:
        tasks.nap.enqueue("long", 600)

        with worker("--max-age", "1", env={"DJQUEUE_SHUTDOWN_TIMEOUT": "1"}) as running:
            running.wait_for_log("worker.recycling")
            running.stop()
            assert running.wait() == 0, running.log

        assert states() == {"available": 1}


class TestInterruption:
    @pytest.mark.parametrize("max_attempts", [5, 1])
    def test_t49_a_job_that_never_ends_before_its_worker_does_spends_its_attempts_and_ends(
        self, max_attempts: int
    ) -> None:
        result = tasks.nap.using(max_attempts=max_attempts).enqueue("long", 60)

        for turn in range(4):
            with worker() as running:
                eventually(lambda turn=turn: Entry.objects.count() == turn + 1, explain=lambda: running.log)
                running.stop(signal.SIGTERM)
                running.wait_for_log("worker.draining")
                running.stop(signal.SIGTERM)
                assert running.wait() == 0, running.log

        job = stored(result)
        assert job.attempt == 1
        if max_attempts == 1:
            assert job.state == JobState.DISCARDED
            assert "4 times" in job.errors[0]["message"]
        else:
            assert (job.state, job.meta["interrupted"]) == (JobState.AVAILABLE, 4)


class TestCancel:
    def test_a_running_task_is_asked_to_stop_and_ends_as_cancelled(self) -> None:
        sync = tasks.wait_for_cancel.enqueue("sync")
        asynchronous = tasks.anap.enqueue("async", 60)

        with worker() as running:
            eventually(lambda: Entry.objects.count() == 2, explain=lambda: running.log)
            asked = time.monotonic()
            api.cancel(sync, by="ada", reason="wrong customer")
            api.cancel(asynchronous, by="ada", reason="wrong customer")
            eventually(lambda: ended() == 2, explain=lambda: running.log)

        assert time.monotonic() - asked < 5
        for result in (sync, asynchronous):
            job = stored(result)
            assert job.state == JobState.CANCELLED, running.log
            assert (job.cancel_request["by"], job.cancel_request["reason"]) == ("ada", "wrong customer")

    def test_a_task_that_completes_although_it_was_asked_to_stop_is_completed(self) -> None:
        result = tasks.nap.enqueue("goes on", 2)

        with worker() as running:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: running.log)
            api.cancel(result, by="ada")
            eventually(lambda: ended(), explain=lambda: running.log)

        result.refresh()
        assert result.return_value == "goes on"
