"""What every engine does when jobs and queues are controlled; a part of the seam's specification."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.lists import Found, JobFilter
from djqueue.jobs.records import Ack, NewJob
from djqueue.jobs.states import JobState
from tests.engines.test_conformance import in_transactions

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WAITING = ["available", "scheduled", "retryable"]


def insert_one(engine, now=NOW, task="tests.task", **fields) -> int:
    return engine.insert([NewJob(task, **fields)], now=now)[0].id


def fetch_one(worker, me, queue="default"):
    [job] = worker.fetch(queue, 1, me, now=NOW)
    return job


def ack(job, state=JobState.COMPLETED, **fields) -> Ack:
    return Ack(job.id, job.claim, state, **fields)


def waiting(engine, worker, me, state) -> int:
    if state == "available":
        return insert_one(engine)
    if state == "scheduled":
        return insert_one(engine, scheduled_at=NOW + 60 * SECOND)
    id = insert_one(engine)
    worker.ack([ack(fetch_one(worker, me), JobState.RETRYABLE, delay=60, error="{}")], now=NOW)
    return id


def finished(engine, worker, me, state=JobState.DISCARDED, **fields) -> int:
    id = insert_one(engine, **fields)
    worker.ack([ack(fetch_one(worker, me, fields.get("queue", "default")), state)], now=NOW)
    return id


def told(controlled) -> list[tuple[str, str]]:
    return [(one.outcome.value, one.reason) for one in controlled]


class TestCancel:
    @pytest.mark.parametrize("state", WAITING)
    def test_a_job_that_waits_ends_at_once_with_who_and_why(self, engine, worker, me, state):
        id = waiting(engine, worker, me, state)

        [controlled] = engine.cancel([id], by="anna", reason="Not needed.", now=NOW + SECOND)

        assert controlled == (id, ControlOutcome.CANCELLED, "", None)
        job = engine.get(id)
        assert (job.state, job.finished_at) == ("cancelled", NOW + SECOND)
        assert job.cancel_request == {"by": "anna", "reason": "Not needed.", "at": "2030-01-01T12:00:01.000000+00:00"}
        assert (job.errors[-1]["exception"], job.errors[-1]["message"], job.errors[-1]["by"]) == (
            "djqueue.exceptions.Cancel",
            "Not needed.",
            "anna",
        )

    @pytest.mark.parametrize(("by", "said"), [("", "Cancelled on request."), ("anna", "Cancelled by anna.")])
    def test_without_a_reason_one_is_given(self, engine, by, said):
        id = insert_one(engine)

        engine.cancel([id], by=by)

        assert engine.get(id).errors[-1]["message"] == said

    def test_a_job_that_executes_is_asked_and_goes_on(self, engine, worker, me):
        id = insert_one(engine)
        claimed = fetch_one(worker, me)

        [controlled] = engine.cancel([id], by="anna", reason="Stop.")

        assert controlled.outcome == ControlOutcome.REQUESTED
        assert engine.get(id).state == "executing"
        assert worker.cancel_requested([id, 999]) == [(id, claimed.claim, "anna", "Stop.")]
        assert worker.cancel_requested([999]) == worker.cancel_requested([]) == []

    def test_the_first_request_is_kept(self, engine, worker, me):
        id = insert_one(engine)
        fetch_one(worker, me)
        engine.cancel([id], by="anna", reason="First.")

        [controlled] = engine.cancel([id], by="ben", reason="Second.")

        assert controlled.outcome == ControlOutcome.REQUESTED
        assert worker.cancel_requested([id])[0].by == "anna"

    def test_a_completed_job_stays_completed(self, engine, worker, me):
        id = insert_one(engine)
        job = fetch_one(worker, me)
        engine.cancel([id], by="anna")

        assert worker.ack([ack(job, result="1")]).accepted == {id}
        assert (engine.get(id).state, engine.get(id).result) == ("completed", 1)
        assert engine.get(id).cancel_request["by"] == "anna"

    @pytest.mark.parametrize(
        ("outcome", "attempt", "errors"),
        [
            ({"state": JobState.RETRYABLE, "delay": 5.0, "error": '{"message": "no"}'}, 1, 2),
            ({"state": JobState.RETRYABLE, "error": '{"message": "no"}'}, 1, 2),
            ({"state": JobState.SCHEDULED, "delay": 5.0, "is_spent": False}, 0, 1),
            ({"state": JobState.AVAILABLE, "is_spent": False}, 0, 1),
        ],
    )
    def test_a_job_that_would_run_again_is_cancelled(self, engine, worker, me, outcome, attempt, errors):
        id = insert_one(engine)
        neighbour = insert_one(engine)
        job, other = worker.fetch("default", 2, me)
        engine.cancel([id], by="anna", reason="Stop.")

        accepted = worker.ack([ack(job, **outcome), ack(other, JobState.RETRYABLE)], now=NOW + SECOND).accepted

        assert accepted == {id, neighbour}
        stored = engine.get(id)
        assert (stored.state, stored.attempt, len(stored.errors)) == ("cancelled", attempt, errors)
        assert stored.errors[-1]["message"] == "Stop."
        assert engine.get(neighbour).state == "available"

    def test_a_stale_ack_does_not_cancel(self, engine, worker, me, register):
        id = insert_one(engine)
        stale = fetch_one(worker, me)
        worker.rescue([me])
        fetch_one(worker, register())
        engine.cancel([id])

        assert worker.ack([ack(stale, JobState.RETRYABLE)]).accepted == set()
        assert engine.get(id).state == "executing"

    @pytest.mark.parametrize("max_attempts", [1, 5])
    def test_a_rescued_job_is_cancelled(self, engine, worker, me, max_attempts):
        id = insert_one(engine, max_attempts=max_attempts)
        fetch_one(worker, me)
        engine.cancel([id], by="anna", reason="Stop.")

        rescued = worker.rescue([me], reason="signal 9", now=NOW + SECOND)

        assert (rescued.requeued, rescued.discarded, rescued.cancelled, rescued.count) == (0, 0, 1, 1)
        job = engine.get(id)
        assert (job.state, job.attempt, [error["message"] for error in job.errors]) == (
            "cancelled",
            1,
            ["signal 9", "Stop."],
        )

    def test_a_rescued_job_that_never_began_is_cancelled_unspent(self, engine, worker, me):
        id = insert_one(engine)
        fetch_one(worker, me)
        engine.cancel([id], reason="Stop.")

        assert worker.rescue([me], ran={}).cancelled == 1
        assert (engine.get(id).attempt, len(engine.get(id).errors)) == (0, 1)

    def test_what_cannot_be_cancelled_says_why(self, engine, worker, me):
        done = finished(engine, worker, me, JobState.COMPLETED)

        assert told(engine.cancel([done, 999_999, 0, -5, 2**70])) == [
            ("skipped", "already completed"),
            *[("skipped", "no such job")] * 4,
        ]

    def test_the_answer_has_the_order_of_the_question(self, engine):
        ids = [insert_one(engine) for _ in range(5)][::-1]

        assert [one.id for one in engine.cancel(ids)] == ids

    def test_a_cancelled_job_gives_its_key_back(self, engine):
        id = insert_one(engine, unique_key="k")
        engine.cancel([id])

        assert insert_one(engine, unique_key="k") != id

    def test_only_jobs_of_the_named_states(self, engine, worker, me):
        running = insert_one(engine)
        fetch_one(worker, me)
        scheduled = insert_one(engine, scheduled_at=NOW + SECOND)

        controlled = engine.cancel([running, scheduled], only=[JobState.SCHEDULED])

        assert told(controlled) == [("skipped", "executing"), ("cancelled", "")]
        assert worker.cancel_requested([running]) == []

    @in_transactions
    def test_it_joins_the_callers_transaction(self, engine):
        id = insert_one(engine)

        with transaction.atomic():
            engine.cancel([id])
            transaction.set_rollback(True)

        assert engine.get(id).state == "available"

    def test_a_reason_that_cannot_be_stored_is_cleaned(self, engine):
        id = insert_one(engine)

        engine.cancel([id], by="a\0b" + "x" * 1000, reason="\ud800\0" + "y" * 10_000)

        request = engine.get(id).cancel_request
        assert request["by"].startswith("a\ufffdb")
        assert len(request["by"]) <= 255
        assert len(request["reason"]) <= 2000

    def test_a_worker_that_listens_hears_of_it(self, engine, worker, me, listener):
        listener.mark(["default"])
        id = insert_one(engine)
        fetch_one(worker, me)
        listener.unmark()
        listener.wait(0)

        engine.cancel([id])

        assert listener.wait(10) == {f"cancel:{id}"}


class TestRetryOfWaitingJobs:
    @pytest.mark.parametrize("state", ["scheduled", "retryable"])
    def test_a_job_that_waits_for_a_time_is_available_now(self, engine, worker, me, state):
        id = waiting(engine, worker, me, state)

        assert told(engine.retry([id], now=NOW + SECOND)) == [("retried", "")]
        assert (engine.get(id).state, engine.get(id).ready_at) == ("available", NOW + SECOND)
        assert worker.stage(now=NOW + timedelta(days=1)).count == 0

    def test_what_cannot_be_retried_says_why(self, engine, worker, me):
        running = insert_one(engine)
        fetch_one(worker, me)
        held = finished(engine, worker, me, unique_key="k")
        holder = insert_one(engine, unique_key="k")

        assert told(engine.retry([running, holder, held, 999_999])) == [
            ("skipped", "executing"),
            ("skipped", "available"),
            ("skipped", f"unique key held by job {holder}"),
            ("skipped", "no such job"),
        ]

    def test_only_jobs_of_the_named_states(self, engine, worker, me):
        completed = finished(engine, worker, me, JobState.COMPLETED)
        discarded = finished(engine, worker, me, JobState.DISCARDED)

        controlled = engine.retry([completed, discarded], only=[JobState.DISCARDED])

        assert told(controlled) == [("skipped", "already completed"), ("retried", "")]

    def test_a_cancelled_job_that_is_retried_is_not_cancelled_again(self, engine, worker, me):
        id = insert_one(engine)
        engine.cancel([id])
        engine.retry([id], now=NOW)

        job = fetch_one(worker, me)

        assert worker.cancel_requested([id]) == []
        worker.ack([ack(job, JobState.RETRYABLE, delay=9.0)])
        assert engine.get(id).state == "retryable"


class TestDiscard:
    @pytest.mark.parametrize("state", WAITING)
    def test_a_job_that_waits_ends_as_discarded(self, engine, worker, me, state):
        id = waiting(engine, worker, me, state)

        assert told(engine.discard([id], by="anna", reason="Bad.", now=NOW)) == [("discarded", "")]
        job = engine.get(id)
        assert (job.state, job.finished_at, job.errors[-1]["message"], job.errors[-1]["by"]) == (
            "discarded",
            NOW,
            "Bad.",
            "anna",
        )

    def test_an_executing_or_finished_job_is_left_alone(self, engine, worker, me):
        done = finished(engine, worker, me, JobState.COMPLETED)
        running = insert_one(engine)
        fetch_one(worker, me)

        assert told(engine.discard([done, running])) == [
            ("skipped", "already completed"),
            ("skipped", "executing"),
        ]


class TestDelete:
    @pytest.mark.parametrize("state", WAITING)
    def test_a_job_that_waits_is_gone(self, engine, worker, me, state):
        id = waiting(engine, worker, me, state)

        assert told(engine.delete([id])) == [("deleted", "")]
        assert engine.get(id) is None

    def test_a_finished_job_is_gone(self, engine, worker, me):
        id = finished(engine, worker, me)

        assert told(engine.delete([id])) == [("deleted", "")]
        assert engine.get(id) is None

    def test_an_executing_job_is_left_to_its_worker(self, engine, worker, me):
        id = insert_one(engine)
        job = fetch_one(worker, me)

        assert told(engine.delete([id])) == [("skipped", "executing")]
        assert worker.ack([ack(job)]).accepted == {id}

    def test_a_finished_job_whose_key_is_held_can_be_deleted(self, engine, worker, me):
        id = finished(engine, worker, me, unique_key="k")
        insert_one(engine, unique_key="k")

        assert told(engine.delete([id])) == [("deleted", "")]


class TestFind:
    def test_jobs_are_found_in_both_tables_by_all_that_is_given(self, engine, worker, me):
        old = finished(engine, worker, me, queue="mail")
        mail = insert_one(engine, queue="mail")
        report = insert_one(engine, queue="mail", task="tests.report", now=NOW + 100 * SECOND)
        other = insert_one(engine)

        def find(**filters):
            jobs = JobFilter(**filters)
            found = engine.count(jobs, now=NOW + 100 * SECOND)
            ids = engine.find(jobs, last=found.last, now=NOW + 100 * SECOND)
            newest = engine.newest(jobs, now=NOW + 100 * SECOND)
            assert found.count == len(ids)
            assert [job.id for job in newest.jobs] == ids[::-1]
            return ids

        assert find() == [old, mail, report, other]
        assert find(queue="mail") == [old, mail, report]
        assert find(task="tests.report") == [report]
        assert find(task_prefix="tests.r") == [report]
        assert find(task_prefix="tests_") == find(task_prefix="%") == []
        assert find(worker=me) == [old]
        assert find(states=(JobState.DISCARDED,)) == [old]
        assert find(states=(JobState.DISCARDED, JobState.AVAILABLE), queue="mail") == [old, mail, report]
        assert find(older_than=60 * SECOND, queue="mail") == [old, mail]
        assert find(older_than=200 * SECOND) == []
        assert find(newer_than=100 * SECOND) == [report]
        assert find(newer_than=101 * SECOND) == [old, mail, report, other]
        assert find(queue="it's \" %s") == []

    def test_a_batch_goes_on_after_the_last_and_ends_where_the_count_said(self, engine):
        ids = [insert_one(engine) for _ in range(5)]
        last = engine.count(JobFilter()).last
        insert_one(engine)

        first = engine.find(JobFilter(), last=last, limit=3)
        second = engine.find(JobFilter(), after=first[-1], last=last, limit=3)

        assert (first, second) == (ids[:3], ids[3:])
        assert engine.find(JobFilter(), after=second[-1], last=last) == []

    def test_a_count_stops_at_its_limit(self, engine, worker, me):
        finished(engine, worker, me)
        for _ in range(5):
            insert_one(engine)

        assert engine.count(JobFilter(), limit=3).count == 3
        assert engine.count(JobFilter(), limit=6).count == 6

    def test_nothing_is_found_in_an_empty_store(self, engine):
        assert engine.count(JobFilter()) == Found(0, 0)


class TestPause:
    def test_nothing_of_a_paused_queue_is_fetched_until_it_is_resumed(self, engine, worker, me):
        id = insert_one(engine)
        other = insert_one(engine, queue="other")

        assert engine.pause("default", by="anna", reason="No paper.", now=NOW)

        assert worker.fetch("default", 10, me) == []
        assert [job.id for job in worker.fetch("other", 10, me)] == [other]
        assert engine.queues() == [("default", NOW, "anna", "No paper.")]
        assert engine.resume("default")
        assert [job.id for job in worker.fetch("default", 10, me)] == [id]
        assert not [rules for rules in engine.queues() if rules.paused_at]

    def test_what_executes_goes_on(self, engine, worker, me):
        id = insert_one(engine)
        job = fetch_one(worker, me)
        engine.pause("default")

        assert worker.ack([ack(job)]).accepted == {id}

    def test_a_second_pause_leaves_the_first(self, engine):
        engine.pause("default", by="anna", now=NOW)

        assert not engine.pause("default", by="ben", now=NOW + SECOND)
        assert engine.queues()[0].paused_by == "anna"

    def test_a_queue_that_is_not_paused_cannot_be_resumed(self, engine):
        assert not engine.resume("default")

    def test_a_job_retried_into_a_paused_queue_waits_for_the_resume(self, engine, worker, me):
        """bull#2540"""
        id = finished(engine, worker, me)
        engine.pause("default")
        engine.retry([id])
        assert worker.fetch("default", 1, me) == []

        engine.resume("default")

        assert fetch_one(worker, me).id == id

    def test_a_resume_wakes_who_sleeps_on_the_queue(self, engine, listener):
        engine.pause("default")
        listener.mark(["default"])

        engine.resume("default")

        assert listener.wait(10) == {"default"}


class TestWorkers:
    def test_workers_are_listed_with_what_they_serve(self, engine, worker, me):
        [one] = engine.workers()

        assert (one.id, one.name, one.queues, one.concurrency) == (me, "test", {"default": None}, 10)
        assert not one.is_dead
        assert 0 <= one.silent_seconds < 60
        worker.bury({me: None})
        assert engine.workers()[0].is_dead
