"""What a caller can rely on who is told that a job is there already: which run sees what the caller's transaction writes.

README says it for each rule. The orders are forced: the worker acts while the caller's transaction is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import transaction
from django.utils import timezone

from djqueue.engines.postgres import engine as postgres_engine
from djqueue.engines.postgres import unique
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.protocol import STAGE
from djqueue.jobs.records import LIVE_ONLY, UniqueRule
from djqueue.jobs.states import JobState
from djqueue.models import Job
from tests.engines.test_unique import (
    DEBOUNCE,
    FOLLOW_UP,
    HOUR,
    NOW,
    REPLACE,
    RESCHEDULE,
    SECOND,
    end,
    fetch,
    insert,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

WEEK = timedelta(days=7)
REPLACE_FOLLOW_UP = UniqueRule(replace=True, follow_up=True)
RESCHEDULE_FOLLOW_UP = UniqueRule(reschedule=True, follow_up=True)
PROMISING = [FOLLOW_UP, REPLACE_FOLLOW_UP, RESCHEDULE_FOLLOW_UP, DEBOUNCE]


class TestTransactions:
    @pytest.fixture
    def engine(self, postgres: PostgresEngine) -> PostgresEngine:
        return postgres

    @pytest.fixture
    def woken(self) -> Iterator[set[str]]:
        """Who is woken after the commit."""
        seen: set[str] = set()
        real = postgres_engine.wake_after_commit

        def note(connection: Any, queues: Any, **fields: Any) -> None:
            seen.update(queues)
            real(connection, queues, **fields)

        with mock.patch.object(postgres_engine, "wake_after_commit", note):
            yield seen

    @pytest.mark.parametrize("rule", [*PROMISING, REPLACE, RESCHEDULE])
    def test_t46_a_waiting_holder_does_not_begin_before_the_commit_of_who_relies_on_it(
        self, engine, worker, me, woken, rule
    ):
        first = insert(engine, rule)

        with transaction.atomic():
            assert insert(engine, rule).id == first.id
            assert worker.fetch("default", 9, me) == []

        assert woken == {"default"}  # the worker passed over it and may sleep
        assert fetch(worker, me).id == first.id

    @pytest.mark.parametrize("rule", PROMISING)
    def test_t46_callers_of_one_key_wait_for_no_worker_and_no_worker_for_them(self, engine, worker, me, rule):
        insert(engine, rule)
        job = fetch(worker, me)

        with transaction.atomic():
            next = insert(engine, rule)
            assert (next.was_duplicate, next.state) == (False, "suspended")
            end(worker, job)
            worker.stage(now=NOW)
            assert worker.fetch("default", 9, me) == []

        worker.stage(now=NOW)
        assert fetch(worker, me).id == next.id

    @pytest.mark.parametrize("rule", PROMISING)
    def test_t46_a_follow_up_does_not_begin_before_the_commit_of_who_relies_on_it(self, engine, worker, me, rule):
        insert(engine, rule)
        job = fetch(worker, me)
        next = insert(engine, rule)

        with transaction.atomic():
            twin = insert(engine, rule)
            assert (twin.id, twin.was_duplicate) == (next.id, True)
            end(worker, job)
            worker.stage(now=NOW)
            assert worker.fetch("default", 9, me) == []

        worker.stage(now=NOW)
        assert fetch(worker, me).id == next.id

    def test_t46_a_holder_that_begins_between_the_look_and_the_lock_is_followed_up(self, engine, worker, me):
        insert(engine, FOLLOW_UP)
        execute, taken = unique.Insertion._execute, []

        def with_a_fetch_in_between(self, name, params):
            if name == "hold":
                taken.append(fetch(worker, me))
            return execute(self, name, params)

        with mock.patch.object(unique.Insertion, "_execute", with_a_fetch_in_between), transaction.atomic():
            next = insert(engine, FOLLOW_UP)
            end(worker, taken[0])

        assert not next.was_duplicate
        worker.stage(now=NOW)
        assert fetch(worker, me).id == next.id

    def test_t46_a_holder_that_has_been_due_for_long_begins_and_the_caller_gets_a_run_of_its_own(
        self, engine, worker, me
    ):
        """Transactions that follow each other closely would keep it from beginning for ever."""
        first = insert(engine, FOLLOW_UP)

        with transaction.atomic():
            next = insert(engine, FOLLOW_UP, now=NOW + 2 * SECOND)
            assert not next.was_duplicate
            job = fetch(worker, me)
            assert job.id == first.id
            end(worker, job)

        worker.stage(now=NOW + 2 * SECOND)
        assert fetch(worker, me).id == next.id

    @pytest.mark.parametrize("rule", [LIVE_ONLY, UniqueRule(window=HOUR)])
    def test_t46_without_follow_up_nothing_is_promised_and_no_worker_waits(self, engine, worker, me, rule):
        first = insert(engine, rule)

        with transaction.atomic():
            twin = insert(engine, rule)
            assert (twin.id, twin.was_duplicate) == (first.id, True)
            end(worker, fetch(worker, me))

        assert worker.fetch("default", 9, me) == []

    def test_t46_a_rolled_back_caller_holds_nothing(self, engine, worker, me):
        first = insert(engine, FOLLOW_UP)
        with transaction.atomic():
            insert(engine, FOLLOW_UP)
            transaction.set_rollback(True)

        assert fetch(worker, me).id == first.id

    @pytest.mark.parametrize("rule", PROMISING)
    def test_t45_transactions_one_after_the_other_let_their_follow_up_begin(self, engine, worker, me, rule):
        """Each holds the row of the follow-up until its commit, and the next one comes at once."""
        insert(engine, rule, args="[0]")
        runs = []
        for number in range(1, 41):
            job = next(iter(worker.fetch("default", 1, me, now=NOW)), None)
            with transaction.atomic():
                insert(engine, rule, args=f"[{number}]")
                if job is not None:
                    runs.append(job.args)
                    end(worker, job)

        # One transaction adds the follow-up and outlasts its predecessor, the next lets it begin with its commit.
        assert runs == [f"[{number}]" for number in range(0, 40, 2)]

    def test_t45_the_stager_is_told_of_the_commit(self, engine, worker, me, woken):
        insert(engine, FOLLOW_UP)
        job = fetch(worker, me)
        for _ in range(2):
            woken.clear()
            with transaction.atomic():
                insert(engine, FOLLOW_UP)
            assert woken == {STAGE}
        end(worker, job)

    def test_t45_a_job_that_takes_the_key_first_is_no_error_of_the_callers(self, engine, worker, me):
        insert(engine, FOLLOW_UP)
        job = fetch(worker, me)
        next = insert(engine, FOLLOW_UP)
        execute = unique.Insertion._execute

        def taken_in_between(self, name, params):
            if name == "release":
                Job.objects.create(task="tests.task", unique_key="k", ready_at=timezone.now())
            return execute(self, name, params)

        with transaction.atomic(), mock.patch("djqueue.engines.postgres.fetcher.release", return_value=set()):
            end(worker, job)
            with mock.patch.object(unique.Insertion, "_execute", taken_in_between), transaction.atomic():
                twin = insert(engine, FOLLOW_UP)

        assert (twin.id, twin.state) == (next.id, "suspended")


class TestTimes:
    """Whose time counts, on every store. What its caller said may not run before a time does not."""

    @contextmanager
    def running(self, engine: Any, worker: Any, me: Any) -> Iterator[None]:
        insert(engine, FOLLOW_UP)
        job = fetch(worker, me)
        yield
        end(worker, job)
        worker.stage(now=NOW)

    def test_t53_a_follow_up_for_now_does_not_wait_for_the_time_of_an_older_one(self, engine, worker, me):
        with self.running(engine, worker, me):
            next = insert(engine, FOLLOW_UP, scheduled_at=NOW + WEEK)
            insert(engine, FOLLOW_UP, args="[2]")

        job = fetch(worker, me)
        assert (job.id, job.args) == (next.id, "[2]")

    def test_t53_a_follow_up_for_next_week_does_not_run_now(self, engine, worker, me):
        with self.running(engine, worker, me):
            next = insert(engine, FOLLOW_UP)
            insert(engine, FOLLOW_UP, args="[2]", delay=WEEK)

        assert engine.get(next.id).state == "scheduled"
        worker.stage(now=NOW + WEEK - SECOND)
        assert worker.fetch("default", 9, me, now=NOW + WEEK - SECOND) == []
        worker.stage(now=NOW + WEEK)
        assert fetch(worker, me, NOW + WEEK).args == "[2]"

    @pytest.mark.parametrize("rule", [REPLACE, REPLACE_FOLLOW_UP])
    @pytest.mark.parametrize("before", [None, NOW + HOUR])
    def test_t53_new_arguments_do_not_run_before_their_time(self, engine, worker, me, rule, before):
        first = insert(engine, rule, scheduled_at=before)
        insert(engine, rule, args="[2]", scheduled_at=NOW + WEEK)

        found = engine.get(first.id)
        assert (found.state, found.scheduled_at, found.args) == ("scheduled", NOW + WEEK, [2])
        worker.stage(now=NOW + HOUR)
        assert worker.fetch("default", 9, me, now=NOW + HOUR) == []
        worker.stage(now=NOW + WEEK)
        assert fetch(worker, me, NOW + WEEK).id == first.id

    @pytest.mark.parametrize("later", [None, NOW + SECOND])
    def test_t53_a_job_that_is_replaced_keeps_its_own_time_otherwise(self, engine, later):
        first = insert(engine, REPLACE, scheduled_at=NOW + HOUR)
        insert(engine, REPLACE, args="[2]", scheduled_at=later)

        found = engine.get(first.id)
        assert (found.state, found.scheduled_at, found.args) == ("scheduled", NOW + HOUR, [2])

    def test_t53_a_failed_job_that_is_replaced_waits_for_the_later_of_both_times(self, engine, worker, me):
        first = insert(engine, REPLACE)
        end(worker, fetch(worker, me), JobState.RETRYABLE, delay=60.0)
        insert(engine, REPLACE, args="[2]", scheduled_at=NOW + HOUR)

        found = engine.get(first.id)
        assert (found.state, found.scheduled_at) == ("retryable", NOW + HOUR)
