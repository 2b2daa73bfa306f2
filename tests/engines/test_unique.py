"""What every engine does with unique keys: a part of the specification in ``test_conformance.py``.

``twin`` is a second job of the same key. Times are passed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import transaction

from djqueue.engines.protocol import Engine
from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.records import LIVE_ONLY, Ack, ClaimedJob, InsertedJob, NewJob, PruneRule, UniqueRule
from djqueue.jobs.states import FINAL_STATES, JobState
from djqueue.maintenance.pruner import Pruner
from djqueue.models import Job
from tests.engines.test_conformance import in_transactions
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)

REPLACE = UniqueRule(replace=True)
RESCHEDULE = UniqueRule(reschedule=True)
FOLLOW_UP = UniqueRule(follow_up=True)
DEBOUNCE = UniqueRule(replace=True, reschedule=True, follow_up=True)
WINDOW = UniqueRule(window=HOUR)
COMPLETED = UniqueRule(holds_completed=True)
COMPLETED_WINDOW = UniqueRule(holds_completed=True, window=HOUR)
RULES = [LIVE_ONLY, REPLACE, RESCHEDULE, FOLLOW_UP, DEBOUNCE, WINDOW, COMPLETED, COMPLETED_WINDOW]


def insert(
    engine: Engine, rule: UniqueRule = LIVE_ONLY, *, now: datetime = NOW, key: str = "k", **fields
) -> InsertedJob:
    [job] = engine.insert([NewJob("tests.task", unique_key=key, **fields)], rule=rule, now=now)
    return job


def fetch(worker: Roles, me: UUID, now: datetime = NOW) -> ClaimedJob:
    [job] = worker.fetch("default", 1, me, now=now)
    return job


def end(worker: Roles, job: ClaimedJob, state: JobState = JobState.COMPLETED, now: datetime = NOW, **fields) -> None:
    assert worker.ack([Ack(job.id, job.claim, state, started=0.0, **fields)], now=now).accepted == {job.id}


def forget(worker: Roles, now: datetime = NOW + SECOND) -> int:
    """Delete what has ended before this time from the history; return how many jobs that were."""
    return worker.prune([PruneRule(state, timedelta(0)) for state in FINAL_STATES], now=now).count


@pytest.fixture
def run(worker: Roles, me: UUID) -> Callable[..., ClaimedJob]:
    """Run the only available job to an end."""

    def run(state: JobState = JobState.COMPLETED, now: datetime = NOW) -> ClaimedJob:
        job = fetch(worker, me, now)
        end(worker, job, state, now)
        return job

    return run


class TestUnique:
    @pytest.mark.parametrize("rule", RULES)
    def test_the_first_job_of_a_key_is_stored_and_a_twin_of_a_waiting_one_is_not(self, engine, rule):
        first = insert(engine, rule)
        twin = insert(engine, rule)

        assert not first.was_duplicate
        assert (twin.id, twin.was_duplicate, twin.inserted_at) == (first.id, True, NOW)
        assert engine.counts()[0].states == {"available": 1}

    @pytest.mark.parametrize("rule", RULES)
    def test_b18_a_running_job_is_not_changed_by_a_twin_of_any_rule(self, engine, worker, me, rule):
        first = insert(engine, rule, args="[1]", priority=1)
        before = (fetch(worker, me), engine.get(first.id))[1]

        insert(engine, rule, args="[2]", priority=2, scheduled_at=NOW + HOUR)

        assert engine.get(first.id) == before

    @pytest.mark.parametrize("rule", [LIVE_ONLY, REPLACE, RESCHEDULE, WINDOW, COMPLETED, COMPLETED_WINDOW])
    def test_without_follow_up_a_running_job_answers_for_its_twins(self, engine, worker, me, rule):
        first = insert(engine, rule)
        fetch(worker, me)

        assert insert(engine, rule) == InsertedJob(first.id, "executing", NOW, True)

    @pytest.mark.parametrize("rule", RULES)
    def test_b98_a_bulk_answers_in_input_order_and_tells_its_duplicates(self, engine, rule):
        held = insert(engine, rule, key="held")
        keys = [f"k{n}" for n in range(1000)]
        keys[400] = keys[700] = "held"

        jobs = engine.insert([NewJob("tests.task", unique_key=key) for key in keys], rule=rule, now=NOW)

        assert {place: job.id for place, job in enumerate(jobs) if job.was_duplicate} == {400: held.id, 700: held.id}
        new = [job.id for job in jobs if not job.was_duplicate]
        assert len(set(new)) == 998
        assert new == sorted(new)
        assert all(engine.get(jobs[place].id).unique_key == keys[place] for place in (0, 399, 401, 999))

    @pytest.mark.parametrize("rule", RULES)
    def test_b98_a_key_twice_in_one_bulk_is_stored_once(self, engine, rule):
        jobs = engine.insert([NewJob("tests.task", unique_key=key) for key in "abacba"], rule=rule, now=NOW)

        assert [job.was_duplicate for job in jobs] == [False, False, True, False, True, True]
        assert [jobs[2].id, jobs[5].id, jobs[4].id] == [jobs[0].id, jobs[0].id, jobs[1].id]

    @pytest.mark.parametrize("rule", RULES)
    def test_jobs_without_a_key_in_the_same_bulk_are_all_stored(self, engine, rule):
        jobs = engine.insert([NewJob("tests.task", unique_key=key) for key in ("a", None, "a", None)], rule=rule)

        assert [job.was_duplicate for job in jobs] == [False, False, True, False]

    @pytest.mark.parametrize("rule", [LIVE_ONLY, REPLACE, RESCHEDULE])
    def test_a_single_job_by_the_stores_own_clock_holds_its_key_as_any_other(self, engine, worker, me, rule):
        first, twin = (engine.insert([NewJob("t", unique_key="k")], rule=rule)[0] for _ in range(2))
        assert (first.was_duplicate, twin) == (False, first._replace(was_duplicate=True))

        end(worker, fetch(worker, me))
        [again] = engine.insert([NewJob("t", unique_key="k")], rule=rule)

        assert not again.was_duplicate
        assert engine.get(again.id).unique_key == "k"

    def test_a_job_that_asks_for_no_period_neither_heeds_nor_ends_one(self, engine, worker, me):
        held = engine.insert([NewJob("t", unique_key="k")], rule=WINDOW)[0]
        end(worker, fetch(worker, me))

        [other] = engine.insert([NewJob("t", unique_key="k")])
        assert not other.was_duplicate
        end(worker, fetch(worker, me))

        assert engine.insert([NewJob("t", unique_key="k")], rule=WINDOW)[0].id == held.id

    @in_transactions
    @pytest.mark.parametrize("rule", RULES)
    def test_a_rolled_back_job_leaves_its_key_free(self, engine, rule):
        with transaction.atomic():
            insert(engine, rule)
            transaction.set_rollback(True)

        assert not insert(engine, rule).was_duplicate

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("state", [JobState.RETRYABLE, JobState.SCHEDULED])
    def test_a_job_that_waits_for_its_next_attempt_keeps_its_key(self, engine, worker, me, rule, state):
        first = insert(engine, rule)
        end(worker, fetch(worker, me), state, delay=60.0)

        assert insert(engine, rule).id == first.id

    def test_b27_staging_and_rescue_meet_no_conflict_for_the_key_was_never_free(self, engine, worker, register):
        first = insert(engine)
        me = register()
        end(worker, fetch(worker, me), JobState.RETRYABLE, delay=1.0)
        insert(engine)
        other = insert(engine, key="other", scheduled_at=NOW + SECOND)

        staged = worker.stage(now=NOW + HOUR)
        [claimed] = [job for job in worker.fetch("default", 9, me) if job.id == first.id]
        insert(engine)
        worker.bury({me: None})
        rescued = worker.rescue([me], ran={claimed.id: claimed.claim})

        assert staged.count == 2
        assert rescued.requeued == 2
        assert {engine.get(first.id).state, engine.get(other.id).state} == {JobState.AVAILABLE}

    @pytest.mark.parametrize("rule", [LIVE_ONLY, REPLACE, FOLLOW_UP, COMPLETED])
    def test_b22_the_key_of_a_job_that_died_with_its_worker_is_freed_by_the_rescue(self, engine, worker, me, rule):
        insert(engine, rule, max_attempts=1)
        fetch(worker, me)
        worker.bury({me: None})

        worker.rescue([me])

        assert not insert(engine, rule).was_duplicate

    def test_a_retry_of_a_finished_job_whose_key_is_held_names_the_holder(self, engine, run):
        for key, rule in (("a", LIVE_ONLY), ("b", COMPLETED)):
            first = insert(engine, rule, key=key)
            run(JobState.DISCARDED)
            second = insert(engine, rule, key=key)

            [answer] = engine.retry([first.id])
            assert (answer.outcome, answer.held_by) == (ControlOutcome.SKIPPED, second.id)
            assert engine.get(first.id).state == JobState.DISCARDED
            run()

    @pytest.mark.parametrize("rule", RULES)
    def test_a_retried_job_holds_its_key_again(self, engine, run, rule):
        first = insert(engine, rule)
        run()
        engine.retry([first.id])

        assert insert(engine, rule, now=NOW + 2 * HOUR).id == first.id


class TestReplace:
    def test_a_waiting_job_takes_the_newest_values_and_keeps_its_time_and_place(self, engine):
        first = insert(
            engine, REPLACE, args="[1]", kwargs='{"a": 1}', priority=1, max_attempts=3, meta='{"x": 1, "y": 1}'
        )
        before = engine.get(first.id)

        twin = insert(
            engine, REPLACE, now=NOW + SECOND, args="[2]", kwargs='{"b": 2}', priority=2, max_attempts=9, meta='{"x": 2}',
            scheduled_at=NOW, expires_at=NOW + 2 * HOUR,
        )  # fmt: skip

        job = engine.get(first.id)
        assert twin == InsertedJob(first.id, "available", NOW, True)
        assert (job.args, job.kwargs, job.priority, job.max_attempts) == ([2], {"b": 2}, 2, 9)
        assert (job.meta, job.expires_at) == ({"x": 2, "y": 1}, NOW + 2 * HOUR)
        assert (job.ready_at, job.scheduled_at, job.inserted_at) == (before.ready_at, None, NOW)

    def test_the_last_of_a_bulk_wins(self, engine):
        jobs = engine.insert(
            [NewJob("tests.task", unique_key="k", args=json.dumps([n])) for n in range(5)], rule=REPLACE, now=NOW
        )

        assert [job.was_duplicate for job in jobs] == [False, True, True, True, True]
        assert engine.get(jobs[0].id).args == [4]

    def test_a_job_that_failed_before_has_room_for_an_attempt_with_the_new_values(self, engine, worker, me):
        first = insert(engine, REPLACE, max_attempts=5)
        end(worker, fetch(worker, me), JobState.RETRYABLE)
        end(worker, fetch(worker, me), JobState.RETRYABLE, delay=60.0)

        insert(engine, REPLACE, max_attempts=1)

        job = engine.get(first.id)
        assert (job.state, job.attempt, job.max_attempts) == (JobState.RETRYABLE, 2, 3)


class TestReschedule:
    def test_a_waiting_job_takes_the_new_time_and_nothing_else(self, engine):
        first = insert(engine, RESCHEDULE, args="[1]", scheduled_at=NOW + SECOND)

        twin = insert(engine, RESCHEDULE, args="[2]", priority=5, delay=HOUR)

        job = engine.get(first.id)
        assert (twin.id, twin.state) == (first.id, "scheduled")
        assert (job.state, job.scheduled_at, job.ready_at) == (JobState.SCHEDULED, NOW + HOUR, None)
        assert (job.args, job.priority) == ([1], 0)

    def test_an_available_job_can_be_put_off(self, engine, worker, me):
        first = insert(engine, RESCHEDULE)

        insert(engine, RESCHEDULE, delay=HOUR)

        assert worker.fetch("default", 1, me) == []
        assert worker.stage(now=NOW + HOUR).count == 1
        assert engine.get(first.id).state == JobState.AVAILABLE

    def test_a_twin_without_a_time_makes_the_job_available_and_wakes_a_worker(self, engine, listener):
        first = insert(engine, RESCHEDULE, delay=HOUR)
        listener.mark(["default"])

        twin = insert(engine, RESCHEDULE)

        assert (twin.id, twin.state) == (first.id, "available")
        assert listener.wait(10) == {"default"}

    def test_an_available_job_keeps_its_place_when_it_is_to_run_now(self, engine):
        first = insert(engine, RESCHEDULE)

        insert(engine, RESCHEDULE, now=NOW + SECOND)

        assert engine.get(first.id).ready_at == NOW

    def test_a_job_that_failed_stays_retryable_at_the_new_time(self, engine, worker, me):
        first = insert(engine, RESCHEDULE)
        end(worker, fetch(worker, me), JobState.RETRYABLE, delay=60.0)

        insert(engine, RESCHEDULE, delay=HOUR)

        job = engine.get(first.id)
        assert (job.state, job.scheduled_at, job.attempt) == (JobState.RETRYABLE, NOW + HOUR, 1)

    def test_duplicates_that_make_nothing_available_wake_nobody(self, engine, listener):
        insert(engine, DEBOUNCE, delay=HOUR)
        listener.mark(["default"])

        insert(engine, DEBOUNCE, delay=HOUR)
        insert(engine, WINDOW, key="other", delay=HOUR)
        insert(engine, WINDOW, key="other")

        assert listener.wait(0.3) == set()


class TestDebounce:
    def test_each_twin_pushes_the_job_back_and_brings_the_newest_values(self, engine, worker, me):
        first = insert(engine, DEBOUNCE, args="[1]", delay=timedelta(minutes=1))
        for n in range(2, 5):
            insert(engine, DEBOUNCE, now=NOW + n * SECOND, args=json.dumps([n]), delay=timedelta(minutes=1))

        job = engine.get(first.id)
        assert (job.args, job.scheduled_at) == ([4], NOW + timedelta(minutes=1, seconds=4))
        assert worker.stage(now=NOW + timedelta(minutes=1)).count == 0
        assert worker.stage(now=NOW + timedelta(minutes=1, seconds=4)).count == 1

    def test_what_comes_while_it_runs_runs_again_that_long_after_the_last(self, engine, worker, me):
        insert(engine, DEBOUNCE, args="[1]")
        running = fetch(worker, me)
        next = insert(engine, DEBOUNCE, args="[2]", delay=timedelta(minutes=1))
        insert(engine, DEBOUNCE, now=NOW + SECOND, args="[3]", delay=timedelta(minutes=1))

        end(worker, running, now=NOW + 2 * SECOND)

        job = engine.get(next.id)
        assert (job.state, job.scheduled_at) == (JobState.SCHEDULED, NOW + timedelta(minutes=1, seconds=1))
        assert (job.args, job.unique_key) == ([3], "k")


class TestWindow:
    def test_the_key_stays_held_until_the_period_has_passed(self, engine, run):
        first = insert(engine, WINDOW)
        run()

        assert insert(engine, WINDOW, now=NOW + HOUR - SECOND) == InsertedJob(first.id, "completed", NOW, True)
        assert not insert(engine, WINDOW, now=NOW + HOUR).was_duplicate

    def test_a_new_period_begins_with_the_next_job(self, engine, run):
        insert(engine, WINDOW)
        run()
        second = insert(engine, WINDOW, now=NOW + HOUR)
        run(now=NOW + HOUR)

        assert insert(engine, WINDOW, now=NOW + 2 * HOUR - SECOND).id == second.id
        assert not insert(engine, WINDOW, now=NOW + 2 * HOUR).was_duplicate

    def test_a_job_that_failed_holds_its_key_for_the_period_too(self, engine, run):
        insert(engine, WINDOW)
        run(JobState.DISCARDED)

        assert insert(engine, WINDOW).was_duplicate

    def test_a_job_that_lives_longer_than_the_period_still_holds_its_key(self, engine, worker, me):
        first = insert(engine, WINDOW)

        assert insert(engine, WINDOW, now=NOW + 2 * HOUR).id == first.id
        fetch(worker, me)
        worker.prune_keys(now=NOW + 2 * HOUR)
        assert insert(engine, WINDOW, now=NOW + 2 * HOUR).id == first.id

    def test_a_job_cancelled_before_it_ran_gives_its_key_back(self, engine, worker, me):
        insert(engine, WINDOW)
        job = fetch(worker, me)
        worker.ack([Ack(job.id, job.claim, JobState.CANCELLED, is_spent=False)])

        assert not insert(engine, WINDOW).was_duplicate

    def test_a_job_cancelled_while_it_ran_does_not(self, engine, run):
        insert(engine, WINDOW)
        run(JobState.CANCELLED)

        assert insert(engine, WINDOW).was_duplicate

    def test_the_period_outlives_the_history(self, engine, worker, run):
        first = insert(engine, WINDOW)
        run()
        assert forget(worker) == 1

        assert insert(engine, WINDOW)[:2] == (first.id, "completed")

    def test_a_bulk_meets_keys_that_are_free_held_and_over(self, engine, run):
        insert(engine, WINDOW, key="over", now=NOW - HOUR)
        run()
        held = insert(engine, WINDOW, key="held")
        run()

        keys = ["over", "held", "free", "over", "free", "held"]
        jobs = engine.insert([NewJob("tests.task", unique_key=key) for key in keys], rule=WINDOW, now=NOW)

        assert [job.was_duplicate for job in jobs] == [False, True, False, True, True, True]
        assert jobs[1].id == jobs[5].id == held.id
        assert jobs[3].id == jobs[0].id

    def test_a_live_job_of_another_rule_holds_the_key_and_leaves_no_period_behind(self, engine, run):
        first = insert(engine, LIVE_ONLY)

        assert insert(engine, WINDOW).id == first.id
        run()
        assert not insert(engine, WINDOW).was_duplicate


class TestCompleted:
    @pytest.mark.parametrize("rule", [COMPLETED, COMPLETED_WINDOW])
    def test_a_completed_job_holds_its_key(self, engine, run, rule):
        first = insert(engine, rule)
        run()

        assert insert(engine, rule) == InsertedJob(first.id, "completed", NOW, True)

    @pytest.mark.parametrize("rule", [COMPLETED, COMPLETED_WINDOW])
    @pytest.mark.parametrize("state", [JobState.DISCARDED, JobState.CANCELLED])
    def test_one_that_ended_otherwise_does_not(self, engine, run, rule, state):
        insert(engine, rule)
        run(state)

        assert not insert(engine, rule).was_duplicate

    def test_without_a_period_it_holds_the_key_for_as_long_as_it_is_kept(self, engine, worker, run):
        insert(engine, COMPLETED)
        run()

        assert insert(engine, COMPLETED, now=NOW + timedelta(days=9999)).was_duplicate
        assert forget(worker) == 1
        assert not insert(engine, COMPLETED).was_duplicate


class TestFollowUp:
    def test_the_newest_values_are_kept_in_one_job_that_waits_for_the_running_one(self, engine, worker, me):
        first = insert(engine, FOLLOW_UP, args="[1]")
        running = fetch(worker, me)

        next = insert(engine, FOLLOW_UP, args="[2]")
        third = insert(engine, FOLLOW_UP, args="[3]")

        assert (next.was_duplicate, next.state) == (False, "suspended")
        assert next.id != first.id
        assert third == InsertedJob(next.id, "suspended", NOW, True)
        assert worker.stage(now=NOW + HOUR).count == 0
        assert worker.fetch("default", 9, me) == []

        end(worker, running)

        job = fetch(worker, me)
        assert (job.id, job.args) == (next.id, "[3]")
        assert engine.get(job.id).unique_key == "k"

    def test_a_bulk_while_it_runs_makes_one_follow_up_with_the_last_values(self, engine, worker, me):
        insert(engine, FOLLOW_UP)
        fetch(worker, me)

        jobs = engine.insert(
            [NewJob("tests.task", unique_key="k", args=json.dumps([n])) for n in range(3)], rule=FOLLOW_UP, now=NOW
        )

        assert [job.was_duplicate for job in jobs] == [False, True, True]
        assert len({job.id for job in jobs}) == 1
        assert engine.get(jobs[0].id).args == [2]

    @pytest.mark.parametrize("state", FINAL_STATES)
    def test_it_begins_however_the_running_one_ends(self, engine, worker, me, state):
        insert(engine, FOLLOW_UP)
        running = fetch(worker, me)
        next = insert(engine, FOLLOW_UP)

        end(worker, running, state)

        assert fetch(worker, me).id == next.id

    def test_the_end_of_the_running_one_wakes_a_worker_for_it(self, engine, worker, me, listener):
        insert(engine, FOLLOW_UP)
        running = fetch(worker, me)
        insert(engine, FOLLOW_UP)
        listener.mark(["default"])

        end(worker, running)

        assert listener.wait(10) == {"default"}

    def test_it_waits_through_retries_of_the_running_one(self, engine, worker, me):
        first = insert(engine, FOLLOW_UP, args="[1]")
        running = fetch(worker, me)
        next = insert(engine, FOLLOW_UP, args="[2]")

        end(worker, running, JobState.RETRYABLE)

        again = fetch(worker, me)
        assert again.id == first.id
        assert worker.stage(now=NOW + HOUR).count == 0
        assert engine.get(next.id).state == JobState.SUSPENDED
        end(worker, again)
        assert fetch(worker, me).id == next.id

    @pytest.mark.parametrize("rule", [FOLLOW_UP, UniqueRule(follow_up=True, replace=True), DEBOUNCE])
    def test_while_the_running_one_waits_for_a_retry_the_newest_values_still_go_to_the_follow_up(
        self, engine, worker, me, rule
    ):
        first = insert(engine, rule, args="[1]")
        running = fetch(worker, me)
        next = insert(engine, rule, args="[2]")
        end(worker, running, JobState.RETRYABLE, delay=60.0)

        twin = insert(engine, rule, args="[3]")

        assert twin.id == next.id
        assert (engine.get(first.id).args, engine.get(next.id).args) == ([1], [3])

    @pytest.mark.parametrize("max_attempts", [1, 2])
    def test_it_is_not_lost_with_the_worker(self, engine, worker, register, max_attempts):
        insert(engine, FOLLOW_UP, max_attempts=max_attempts)
        dead, me = register(), register()
        fetch(worker, dead)
        next = insert(engine, FOLLOW_UP)
        worker.bury({dead: None})
        worker.rescue([dead])

        if max_attempts > 1:
            end(worker, fetch(worker, me))
        worker.stage(now=NOW)

        assert fetch(worker, me).id == next.id

    @in_transactions
    def test_the_stager_lets_it_begin_when_nobody_else_did_and_wakes_a_worker(self, engine, worker, me, listener):
        first = insert(engine, FOLLOW_UP)
        fetch(worker, me)
        next = insert(engine, FOLLOW_UP)
        Job.objects.filter(pk=first.id).delete()
        listener.mark(["default"])

        staged = worker.stage(now=NOW)

        assert staged.queues == ["default"]
        assert listener.wait(10) == {"default"}
        assert fetch(worker, me).id == next.id

    @in_transactions
    def test_whoever_comes_before_the_stager_gives_it_the_newest_values(self, engine, worker, me):
        first = insert(engine, FOLLOW_UP)
        fetch(worker, me)
        next = insert(engine, FOLLOW_UP, args="[2]")
        Job.objects.filter(pk=first.id).delete()

        assert insert(engine, FOLLOW_UP, args="[3]") == InsertedJob(next.id, "available", NOW, True)

        worker.stage(now=NOW)
        assert fetch(worker, me).args == "[3]"

    @in_transactions
    def test_it_waits_for_a_job_of_another_rule_that_came_before_it_too(self, engine, worker, me):
        first = insert(engine, FOLLOW_UP)
        fetch(worker, me)
        next = insert(engine, FOLLOW_UP)
        Job.objects.filter(pk=first.id).delete()
        other = insert(engine, LIVE_ONLY)
        due = insert(engine, key="due", scheduled_at=NOW + SECOND)

        assert worker.stage(now=NOW + SECOND).count == 1
        assert engine.get(due.id).state == JobState.AVAILABLE
        assert engine.get(next.id).state == JobState.SUSPENDED

        for job in worker.fetch("default", 9, me):
            end(worker, job)
        assert not other.was_duplicate
        assert fetch(worker, me).id == next.id

    def test_it_has_a_follow_up_of_its_own_once_it_runs(self, engine, worker, me):
        ids = [insert(engine, FOLLOW_UP).id]
        for _ in range(3):
            running = fetch(worker, me)
            assert running.id == ids[-1]
            ids.append(insert(engine, FOLLOW_UP).id)
            end(worker, running)

        assert len(set(ids)) == 4

    def test_one_that_was_cancelled_while_it_waited_is_retried_under_the_real_key(self, engine, worker, me):
        first = insert(engine, FOLLOW_UP)
        running = fetch(worker, me)
        next = insert(engine, FOLLOW_UP)
        engine.cancel([next.id])

        assert [answer.held_by for answer in engine.retry([next.id])] == [first.id]
        end(worker, running)
        assert [answer.outcome for answer in engine.retry([next.id])] == [ControlOutcome.RETRIED]
        assert engine.get(next.id).unique_key == "k"


class TestPruneKeys:
    def test_expired_keys_go_and_others_stay(self, engine, worker, run):
        for key, now in (("old", NOW - HOUR), ("new", NOW)):
            insert(engine, WINDOW, key=key, now=now)
            run()

        assert worker.prune_keys(now=NOW) == 1
        assert worker.prune_keys(now=NOW) == 0
        assert insert(engine, WINDOW, key="new").was_duplicate

    def test_keys_without_an_end_go_with_the_jobs_that_held_them(self, engine, worker, run, me):
        for key, now in (("pruned", NOW - HOUR), ("kept", NOW)):
            insert(engine, COMPLETED, key=key, now=now)
            run(now=now)
        insert(engine, COMPLETED, key="failed")
        run(JobState.DISCARDED)
        insert(engine, COMPLETED, key="live")
        assert forget(worker, now=NOW - SECOND) == 1

        assert worker.prune_keys() == 2
        assert [insert(engine, COMPLETED, key=key).was_duplicate for key in ("kept", "live", "pruned", "failed")] == [
            True, True, False, False,
        ]  # fmt: skip

    def test_one_run_takes_no_more_than_its_limit(self, engine, worker, run):
        for key in "abc":
            insert(engine, WINDOW, key=key, now=NOW - HOUR)
            run()

        assert [worker.prune_keys(2, now=NOW), worker.prune_keys(2, now=NOW)] == [2, 1]

    def test_the_pruner_does_it_after_each_pass_as_the_leader_only(self, engine, worker, run):
        long_ago = NOW - timedelta(days=9999)
        insert(engine, WINDOW, now=long_ago)
        run()

        Pruner(worker, [], is_leader=lambda: False).run_once()
        assert insert(engine, WINDOW, now=long_ago).was_duplicate
        pruner = Pruner(worker, [], is_leader=lambda: True)
        while pruner.last_run is None:
            pruner.run_once()
        assert worker.prune_keys() == 0

    @pytest.mark.parametrize("rule", RULES)
    def test_a_deleted_job_gives_its_key_back_at_once(self, engine, run, rule):
        waiting = insert(engine, rule)
        engine.delete([waiting.id])
        finished = insert(engine, rule)
        run()
        engine.delete([finished.id])

        assert not insert(engine, rule).was_duplicate
        assert len({waiting.id, finished.id}) == 2

    def test_a_waiting_job_that_is_cancelled_gives_its_key_back_and_a_follow_up_too(self, engine, worker, me):
        for rule in (WINDOW, COMPLETED, LIVE_ONLY):
            engine.cancel([insert(engine, rule).id])
            job = insert(engine, rule)
            assert not job.was_duplicate
            engine.cancel([job.id])
        insert(engine, FOLLOW_UP)
        fetch(worker, me)
        engine.cancel([insert(engine, FOLLOW_UP).id])

        assert not insert(engine, FOLLOW_UP).was_duplicate
