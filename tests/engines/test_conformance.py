"""What every engine does: the specification of the seam in ``djqueue/engines/protocol/``.

Times are passed in; nothing here waits for a clock, except a listener that must be shown not to wake.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connections, transaction

from djqueue.exceptions import EngineRefused
from djqueue.jobs.compression import compressed, decode_arguments, readable
from djqueue.jobs.encoding import encode_arguments
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, ClaimedJob, InsertedJob, Lease, NewJob, PruneRule, Rescued, Staged, WorkerInfo
from djqueue.jobs.states import JobState

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
QUIET = 0.3
"""Seconds in which a wake-up that must not come would have come."""
LONG = 10.0
"""Seconds that no wake-up may need."""
in_transactions = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
"""What is true of engines whose verbs join the caller's transaction."""


def insert(engine, count=1, now=NOW, **fields) -> list[InsertedJob]:
    return engine.insert([NewJob("tests.task", **fields) for _ in range(count)], now=now)


def insert_one(engine, now=NOW, **fields) -> int:
    return insert(engine, now=now, **fields)[0].id


def fetch_one(worker, me, now=NOW, queue="default") -> ClaimedJob:
    [job] = worker.fetch(queue, 1, me, now=now)
    return job


def ids(jobs) -> list[int]:
    return [job.id for job in jobs]


def ack(job, state=JobState.COMPLETED, **fields) -> Ack:
    return Ack(job.id, job.claim, state, **fields)


class TestInsert:
    def test_a_job_is_available_at_once(self, engine):
        [job] = engine.insert([NewJob("tests.task")], now=NOW)

        assert job.state == JobState.AVAILABLE
        assert job.inserted_at == NOW
        assert not job.was_duplicate
        assert engine.get(job.id).ready_at == NOW

    def test_nothing_is_stored_as_nothing(self, engine):
        assert engine.insert([]) == []

    def test_the_answer_has_the_order_of_the_question(self, engine):
        jobs = engine.insert([NewJob(f"tests.task_{n}") for n in range(100)])

        assert [engine.get(job.id).task for job in jobs] == [f"tests.task_{n}" for n in range(100)]
        assert ids(jobs) == sorted(ids(jobs))

    def test_every_field_is_kept(self, engine):
        new = NewJob(
            "shop.tasks.send",
            args='[1, "zwei", null, [3.5]]',
            kwargs='{"name": "Ünal \U0001f680"}',
            queue="mail",
            priority=-100,
            max_attempts=3,
            scheduled_at=NOW + SECOND,
            expires_at=NOW + 9 * SECOND,
            meta='{"trace": "abc"}',
            unique_key="key",
        )

        [inserted] = engine.insert([new], now=NOW)

        job = engine.get(inserted.id)
        assert (job.task, job.args, job.kwargs) == (
            new.task,
            [1, "zwei", None, [3.5]],
            {"name": "Ünal \U0001f680"},
        )
        assert (job.queue, job.priority, job.max_attempts) == ("mail", -100, 3)
        assert (job.scheduled_at, job.expires_at) == (new.scheduled_at, new.expires_at)
        assert (job.meta, job.unique_key) == ({"trace": "abc"}, "key")
        assert (job.attempt, job.claim, job.attempted_by, job.attempted_at) == (0, 0, None, None)
        assert (job.errors, job.result, job.started_at, job.finished_at) == ([], None, None, None)

    def test_compressed_arguments_are_kept_like_plain_ones(self, engine, worker, me):
        stored = compressed(encode_arguments(["x" * 5000], {"y": 1}, 100_000))

        [inserted] = engine.insert([NewJob("tests.task", args=stored.args, kwargs=stored.kwargs)], now=NOW)
        [many] = engine.insert_many(NewJob("tests.task"), [stored], now=NOW).ids

        for claimed in worker.fetch("default", 2, me, now=NOW):
            job = engine.get(claimed.id)
            assert claimed.id in (inserted.id, many)
            assert decode_arguments(claimed.args, claimed.kwargs) == (["x" * 5000], {"y": 1})
            assert readable(job.args, job.kwargs) == (["x" * 5000], {"y": 1})

    def test_a_job_with_a_time_in_the_future_is_scheduled(self, engine):
        [job] = insert(engine, scheduled_at=NOW + SECOND)

        assert job.state == JobState.SCHEDULED

    def test_a_job_with_a_time_in_the_past_is_available(self, engine):
        [job] = insert(engine, scheduled_at=NOW - SECOND)

        assert job.state == JobState.AVAILABLE

    def test_a_delay_counts_from_the_insert(self, engine):
        [job] = insert(engine, delay=timedelta(hours=1))

        assert job.state == JobState.SCHEDULED
        assert engine.get(job.id).scheduled_at == NOW + timedelta(hours=1)

    @pytest.mark.parametrize("delay", [timedelta(0), timedelta(seconds=-5)])
    def test_a_delay_of_nothing_or_less_is_no_delay(self, engine, delay):
        [job] = insert(engine, delay=delay)

        assert job.state == JobState.AVAILABLE

    @in_transactions
    def test_the_clock_is_the_stores_and_runs_on_inside_a_transaction(self, engine):
        with transaction.atomic():
            first = engine.insert([NewJob("tests.task")])[0].inserted_at
            second = engine.insert([NewJob("tests.task")])[0].inserted_at

        assert first < second

    @in_transactions
    def test_a_rolled_back_job_does_not_exist(self, engine):
        with transaction.atomic():
            id = insert_one(engine)
            transaction.set_rollback(True)

        assert engine.get(id) is None

    @in_transactions
    def test_a_job_of_a_rolled_back_savepoint_does_not_exist_and_its_neighbour_does(self, engine):
        with transaction.atomic():
            outer = insert_one(engine)
            with transaction.atomic():
                inner = insert_one(engine)
                transaction.set_rollback(True)

        assert engine.get(inner) is None
        assert engine.get(outer) is not None

    def test_a_thousand_jobs_of_fifty_kilobytes_with_a_long_queue_name_fit_into_one_transaction(
        self, engine, worker, me
    ):
        """B64"""
        queue = "q" * 120

        with transaction.atomic() if engine.is_transactional else nullcontext():
            jobs = insert(engine, 1000, queue=queue, args=json.dumps(["x" * 50_000]))

        assert len(set(ids(jobs))) == 1000
        assert len(worker.fetch(queue, 5, me)) == 5

    def test_a_live_job_keeps_its_unique_key_and_a_duplicate_is_told_which_job_that_is(self, engine):
        [first] = insert(engine, unique_key="k", scheduled_at=NOW + SECOND)

        [second] = insert(engine, unique_key="k", now=NOW + SECOND)

        assert second == InsertedJob(first.id, "scheduled", NOW, was_duplicate=True)
        assert engine.get(first.id).inserted_at == NOW

    def test_a_key_that_comes_twice_in_one_insert_is_stored_once(self, engine):
        """B98"""
        held = insert_one(engine, unique_key="held")
        keys = [f"key-{n}" for n in range(1000)]
        keys[400] = keys[500] = "held"
        keys[800] = keys[100]

        jobs = engine.insert([NewJob("tests.task", unique_key=key) for key in keys], now=NOW)

        duplicates = {place: job.id for place, job in enumerate(jobs) if job.was_duplicate}
        assert duplicates == {400: held, 500: held, 800: jobs[100].id}
        assert len({job.id for job in jobs if not job.was_duplicate}) == 997

    def test_a_bulk_with_keys_still_runs_in_the_order_of_its_input(self, engine, worker, me):
        jobs = engine.insert([NewJob("tests.task", unique_key=key) for key in "zaymbx"], now=NOW)

        assert ids(worker.fetch("default", 10, me)) == ids(jobs)

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED, JobState.DISCARDED])
    def test_a_finished_job_gives_its_key_back(self, engine, worker, me, state):
        insert(engine, unique_key="k")
        worker.ack([ack(fetch_one(worker, me), state)])

        [job] = insert(engine, unique_key="k")

        assert not job.was_duplicate

    def test_a_running_job_keeps_its_key_and_is_not_touched_by_a_duplicate(self, engine, worker, me):
        """B18"""
        id = insert_one(engine, unique_key="k")
        worker.fetch("default", 1, me, now=NOW)
        before = engine.get(id)

        jobs = [insert(engine, unique_key="k")[0] for _ in range(3)]

        assert {(job.id, job.state, job.was_duplicate) for job in jobs} == {(id, "executing", True)}
        assert engine.get(id) == before


class TestInsertMany:
    """One row of ``insert_many`` is what ``insert`` makes of the same job."""

    def test_every_field_is_that_of_insert(self, engine):
        new = NewJob(
            "shop.tasks.send",
            args='[1,"a\\tb\\\\c\\n"]',
            kwargs='{"name":"Ünal \U0001f680"}',
            queue="mail",
            priority=-100,
            max_attempts=3,
            expires_at=NOW + 9 * SECOND,
            meta='{"trace":"a\\\\b"}',
        )
        for change in ({}, {"scheduled_at": NOW + SECOND}, {"scheduled_at": NOW - SECOND}, {"delay": SECOND}):
            for change_2 in ({}, {"expires_at": None, "max_age": SECOND}):
                job = new._replace(**change, **change_2)
                [one] = engine.insert([job], now=NOW)
                many = engine.insert_many(job, [(job.args, job.kwargs)] * 3, now=NOW)

                assert (many.state, many.inserted_at) == (one.state, one.inserted_at)
                for id in many.ids:
                    assert replace(engine.get(id), id=one.id) == engine.get(one.id)

    def test_the_arguments_arrive_as_they_were_whatever_is_in_them(self, engine):
        odd = ["\\", "\\.", "\\N", "\\n", "a\tb\nc\rd", "\x01\x7f\x85\u2028", '"', "", "'; DROP", "\\\\", "Ü\U0001f680"]
        texts = [encode_arguments([text], {text: [text]}, 1000) for text in odd]

        many = engine.insert_many(NewJob("t"), texts)

        assert [engine.get(id).args for id in many.ids] == [[text] for text in odd]
        assert [engine.get(id).kwargs for id in many.ids] == [{text: [text]} for text in odd]

    def test_nothing_is_stored_as_nothing(self, engine):
        assert list(engine.insert_many(NewJob("t"), []).ids) == []

    def test_they_run_in_their_order(self, engine, worker, me):
        many = engine.insert_many(NewJob("t"), [(f"[{n}]", "{}") for n in range(100)])

        assert [job.args for job in worker.fetch("default", 100, me)] == [f"[{n}]" for n in range(100)]
        assert list(many.ids) == sorted(many.ids)

    def test_two_at_once_share_no_id(self, engine):
        answers = []

        def work():
            try:
                answers.extend(engine.insert_many(NewJob("t"), [("[]", "{}")] * 50) for _ in range(10))
            finally:
                connections.close_all()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        found = [id for many in answers for id in many.ids]
        assert len(found) == len(set(found)) == 1500
        assert all(engine.get(id) for id in found[::50])

    @in_transactions
    def test_a_rollback_takes_them_with_it(self, engine):
        with suppress(ZeroDivisionError), transaction.atomic():
            many = engine.insert_many(NewJob("t"), [("[]", "{}")] * 3)
            raise ZeroDivisionError

        assert [engine.get(id) for id in many.ids] == [None] * 3

    def test_a_sleeper_is_woken(self, engine, listener):
        listener.mark(["default"])

        engine.insert_many(NewJob("t"), [("[]", "{}")])

        assert listener.wait(LONG) == {"default"}

    def test_nobody_is_woken_for_later(self, engine, listener):
        listener.mark(["default"])

        engine.insert_many(NewJob("t", delay=SECOND), [("[]", "{}")])

        assert listener.wait(QUIET) == set()


class TestGet:
    def test_an_unknown_job_is_none(self, engine):
        assert engine.get(1) is None

    @pytest.mark.parametrize("id", [0, -1, 2**63, 10**30])
    def test_an_impossible_id_is_none(self, engine, id):
        assert engine.get(id) is None

    def test_a_finished_job_is_found_with_all_it_had(self, engine, worker, me):
        id = insert_one(engine, args="[1]", kwargs='{"a": 2}', queue="q", priority=7, meta='{"m": 1}', unique_key="k")
        live = engine.get(id)
        worker.ack([ack(fetch_one(worker, me, queue="q"))], now=NOW)

        job = engine.get(id)

        same = [
            "id",
            "queue",
            "task",
            "args",
            "kwargs",
            "priority",
            "max_attempts",
            "inserted_at",
            "ready_at",
            "meta",
            "unique_key",
        ]
        assert {name: getattr(job, name) for name in same} == {name: getattr(live, name) for name in same}


class TestFetch:
    def test_higher_priority_runs_first_then_who_came_first(self, engine, worker, me):
        low = insert_one(engine, priority=-5)
        first = insert_one(engine)
        twin = insert_one(engine)
        second = insert_one(engine, now=NOW + SECOND)
        high = insert_one(engine, priority=100, now=NOW + 2 * SECOND)

        assert ids(worker.fetch("default", 10, me)) == [high, first, twin, second, low]

    def test_the_limit_is_never_exceeded(self, engine, worker, me):
        insert(engine, 50)

        counts = [len(worker.fetch("default", 7, me)) for _ in range(9)]

        assert counts == [7, 7, 7, 7, 7, 7, 7, 1, 0]

    def test_a_limit_of_none_claims_none(self, engine, worker, me):
        insert(engine)

        assert worker.fetch("default", 0, me) == []

    def test_only_the_queue_that_was_asked_for(self, engine, worker, me):
        insert(engine, queue="other")

        assert worker.fetch("default", 10, me) == []

    def test_a_claim_counts_the_attempt_and_raises_the_claim(self, engine, worker, me):
        id = insert_one(engine)

        claimed = fetch_one(worker, me, now=NOW + SECOND)

        assert claimed.attempt == 1
        assert claimed.claim > 0
        job = engine.get(id)
        assert (job.state, job.attempt, job.claim) == ("executing", 1, claimed.claim)
        assert (job.attempted_by, job.attempted_at) == (me, NOW + SECOND)
        assert job.started_at is None

    def test_a_claimed_job_is_not_claimed_again(self, engine, worker, me, register):
        insert(engine)
        worker.fetch("default", 1, me)

        assert worker.fetch("default", 1, register()) == []

    def test_a_claim_carries_what_an_execution_needs(self, engine, worker, me):
        id = insert_one(
            engine, queue="q", args="[1]", kwargs='{"a": [2]}', meta='{"m": 1}', priority=3, max_attempts=4,
            scheduled_at=NOW - SECOND, expires_at=NOW + SECOND,
        )  # fmt: skip

        job = fetch_one(worker, me, queue="q")

        assert (job.id, job.queue, job.task, job.priority, job.max_attempts) == (id, "q", "tests.task", 3, 4)
        assert (json.loads(job.args), json.loads(job.kwargs), json.loads(job.meta)) == (
            [1],
            {"a": [2]},
            {"m": 1},
        )
        assert json.loads(job.errors) == []
        assert (job.inserted_at, job.scheduled_at, job.expires_at) == (NOW, NOW - SECOND, NOW + SECOND)
        assert (job.started_at, job.attempted_at) == (None, NOW)

    def test_jobs_that_wait_are_not_claimed(self, engine, worker, me):
        insert(engine, scheduled_at=NOW + SECOND)

        assert worker.fetch("default", 1, me, now=NOW + 2 * SECOND) == []

    def test_an_unregistered_worker_gets_nothing(self, engine, worker):
        insert(engine)

        assert worker.fetch("default", 1, uuid4()) == []

    def test_a_buried_worker_gets_nothing(self, engine, worker, me):
        insert(engine)
        worker.bury({me: None})

        assert worker.fetch("default", 1, me) == []

    def test_a_queue_name_is_data(self, engine, worker, me):
        queue = 'it\'s; %(x)s \\ "q"'
        id = insert_one(engine, queue=queue)

        assert ids(worker.fetch(queue, 1, me)) == [id]


class TestReady:
    def test_t72_names_the_queues_that_have_something_to_fetch(self, engine, worker, me):
        for queue in ("a", "b", "c", "d", "waits"):
            insert(engine, queue=queue, delay=SECOND * 60 if queue == "waits" else None)
        engine.pause("b")
        assert len(worker.fetch("c", 10, me)) == 1

        assert worker.ready(["a", "b", "c", "e", "waits", "d"]) == {"a", "d"}
        assert worker.ready(["e"]) == set()
        assert worker.ready([]) == set()

    def test_t72_finds_a_few_among_thousands(self, engine, worker):
        queues = [f"tenant-{number}" for number in range(2500)]
        for number in (0, 999, 1000, 1700, 1701, 2499):
            insert(engine, queue=queues[number])

        assert worker.ready(queues) == {queues[number] for number in (0, 999, 1000, 1700, 1701, 2499)}
        assert worker.ready(queues[1700:1702]) == set(queues[1700:1702])


class TestTake:
    """Jobs that run at most once: the store forgets them when they are fetched."""

    def test_it_gives_what_fetch_gives(self, engine, worker, me):
        fields = {"args": '["Ü"]', "priority": 5, "max_attempts": 3, "meta": '{"a":1}', "expires_at": NOW + SECOND}
        taken_id, fetched_id = insert_one(engine, queue="a", **fields), insert_one(engine, queue="b", **fields)

        [taken] = worker.take("a", 5, me, now=NOW)
        [fetched] = worker.fetch("b", 5, me, now=NOW)

        assert (taken.id, fetched.id) == (taken_id, fetched_id)
        assert tuple(taken._replace(id=0, queue="")) == tuple(fetched._replace(id=0, queue=""))
        assert (taken.is_taken, fetched.is_taken) == (True, False)

    def test_while_it_runs_the_store_does_not_know_it(self, engine, worker, me):
        id = insert_one(engine)
        worker.take("default", 1, me)

        assert engine.get(id) is None
        assert worker.take("default", 1, me) == []
        assert worker.rescue([me]).count == 0

    def test_they_come_in_run_order_up_to_the_limit(self, engine, worker, me):
        low, high = insert_one(engine, priority=-1), insert_one(engine, priority=1)

        assert ids(worker.take("default", 1, me)) == [high]
        assert ids(worker.take("default", 5, me)) == [low]

    def test_nothing_for_a_dead_worker_or_from_a_paused_queue(self, engine, worker, register):
        insert(engine)
        dead, living = register(), register()
        worker.bury({dead: None})

        assert worker.take("default", 1, dead) == []
        engine.pause("default")
        assert worker.take("default", 1, living) == []

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.DISCARDED, JobState.CANCELLED])
    def test_the_ack_writes_the_history(self, engine, worker, me, state):
        id = insert_one(engine, args="[1]", meta='{"a":1}')
        [job] = worker.take("default", 1, me, now=NOW)
        end = time.monotonic()
        outcome = ack(job, state, started=end - 2, finished=end, result='{"b":2}', error='{"m":1}', taken=job)

        assert worker.ack([outcome], now=NOW + SECOND).accepted == {id}

        stored = engine.get(id)
        assert (stored.state, stored.args, stored.meta, stored.result) == (state, [1], {"a": 1}, {"b": 2})
        assert (stored.attempt, stored.claim, stored.attempted_by, stored.errors) == (1, job.claim, me, [{"m": 1}])
        assert stored.finished_at - stored.started_at == pytest.approx(2 * SECOND, abs=SECOND / 100)

    def test_an_ack_after_a_lost_answer_changes_nothing(self, engine, worker, me):
        insert(engine)
        [job] = worker.take("default", 1, me)
        worker.ack([ack(job, result="1", taken=job)])

        assert worker.ack([ack(job, result="2", taken=job)]).accepted == {job.id}
        assert engine.get(job.id).result == 1

    def test_what_never_began_is_put_back_unspent(self, engine, worker, me):
        insert(engine, args="[1]")
        [job] = worker.take("default", 1, me)

        assert worker.ack([ack(job, JobState.AVAILABLE, is_spent=False, taken=job)]).accepted == {job.id}

        stored = engine.get(job.id)
        assert (stored.state, stored.attempt, stored.args) == (JobState.AVAILABLE, 0, [1])
        [again] = worker.take("default", 1, me)
        assert again.attempt == 1
        assert again.claim > job.claim

    def test_or_parked(self, engine, worker, me):
        insert(engine, meta='{"a":1}')
        [job] = worker.take("default", 1, me)

        worker.ack([ack(job, JobState.SCHEDULED, delay=30, is_spent=False, note='{"parked":"x"}', taken=job)], now=NOW)

        stored = engine.get(job.id)
        assert (stored.state, stored.scheduled_at) == (JobState.SCHEDULED, NOW + 30 * SECOND)
        assert stored.meta == {"a": 1, "parked": "x"}

    def test_a_batch_may_hold_both_kinds(self, engine, worker, me):
        insert(engine, 2)
        [taken] = worker.take("default", 1, me)
        [fetched] = worker.fetch("default", 1, me)

        accepted = worker.ack([ack(fetched), ack(taken, taken=taken), ack(fetched._replace(id=10**9))]).accepted

        assert accepted == {taken.id, fetched.id}
        assert engine.get(taken.id).state == engine.get(fetched.id).state == JobState.COMPLETED


class TestTakeAndRetry:
    def test_t15_a_history_that_is_written_again_does_not_double_a_job_that_was_retried(self, engine, worker, me):
        id = insert_one(engine)
        [job] = worker.take("default", 1, me)
        worker.ack([ack(job, JobState.DISCARDED, taken=job)])
        assert engine.retry([id])[0].is_done

        worker.ack([ack(job, JobState.DISCARDED, taken=job)])  # the answer to the first was lost

        assert engine.get(id).state == "available"
        assert engine.count(JobFilter()).count == 1
        [again] = worker.take("default", 1, me)
        worker.ack([ack(again, result="7", taken=again)])
        assert engine.get(id).result == 7


class TestTakeWithUniqueKey:
    def back(self, job, **fields):
        return ack(job, JobState.AVAILABLE, is_spent=False, taken=job, **fields)

    @pytest.mark.parametrize("delay", [0.0, 30.0])
    def test_t52_a_job_that_is_put_back_has_its_key_again(self, engine, worker, me, delay):
        id = insert_one(engine, unique_key="k", max_attempts=3)
        [job] = worker.take("default", 1, me)
        state = JobState.SCHEDULED if delay else JobState.AVAILABLE
        worker.ack([ack(job, state, is_spent=False, delay=delay, taken=job)])

        again = insert(engine, 5, unique_key="k")

        assert [(one.id, one.was_duplicate) for one in again] == [(id, True)] * 5
        assert engine.get(id).unique_key == "k"
        engine.cancel([id])
        assert not insert(engine, unique_key="k")[0].was_duplicate

    def test_t52_it_comes_back_without_when_another_has_taken_the_key(self, engine, worker, me):
        first = insert_one(engine, unique_key="k", args="[1]", meta='{"a":1}', expires_at=NOW + 9 * SECOND)
        [job] = worker.take("default", 1, me)
        second = insert_one(engine, unique_key="k")

        worker.ack([self.back(job)])

        stored = engine.get(first)
        assert (stored.state, stored.unique_key, stored.args, stored.meta) == ("available", None, [1], {"a": 1})
        assert (stored.expires_at, stored.attempt) == (NOW + 9 * SECOND, 0)
        assert engine.get(second).unique_key == "k"
        assert insert(engine, unique_key="k")[0].id == second

    def test_t52_of_two_that_are_put_back_together_one_has_the_key(self, engine, worker, me):
        first = insert_one(engine, unique_key="k")
        [one] = worker.take("default", 1, me)
        second = insert_one(engine, unique_key="k")
        [other] = worker.take("default", 1, me)

        worker.ack([self.back(one), self.back(other)])

        assert sorted(engine.get(id).unique_key or "" for id in (first, second)) == ["", "k"]
        assert insert(engine, unique_key="k")[0].was_duplicate

    def test_t52_one_that_ran_holds_its_key_no_more(self, engine, worker, me):
        insert_one(engine, unique_key="k")
        [job] = worker.take("default", 1, me)
        worker.ack([ack(job, taken=job)])

        assert not insert(engine, unique_key="k")[0].was_duplicate


class TestAck:
    def test_t56_an_outcome_of_no_job_is_stale_and_changes_nothing(self, engine, worker):
        assert worker.ack([Ack(0, 0, JobState.COMPLETED)]).accepted == set()
        assert engine.counts() == []

    def test_a_completed_job_keeps_its_outcome_and_times(self, engine, worker, me):
        id = insert_one(engine)
        job = fetch_one(worker, me)
        clock = time.monotonic()

        accepted = worker.ack(
            [ack(job, started=clock - 3, finished=clock - 1, result='{"total": 3}')],
            now=NOW + timedelta(minutes=1),
        ).accepted

        assert accepted == {id}
        stored = engine.get(id)
        assert (stored.state, stored.result, stored.attempt) == ("completed", {"total": 3}, 1)
        near = timedelta(seconds=0.5)
        assert abs(stored.started_at - (NOW + timedelta(seconds=57))) < near
        assert abs(stored.finished_at - (NOW + timedelta(seconds=59))) < near
        assert stored.attempted_at == stored.started_at

    def test_nothing_to_ack_is_fine(self, worker):
        assert worker.ack([]).accepted == set()

    def test_a_null_result_is_null(self, engine, worker, me):
        id = insert_one(engine)
        worker.ack([ack(fetch_one(worker, me), result="null")])

        assert engine.get(id).result is None

    def test_outcomes_of_one_batch_keep_every_character_and_what_is_missing(self, engine, worker, me):
        texts = [
            'a "quoted" \\ and \\\\ {brace}, comma',
            "NULL",
            "",
            "two\nlines\tand \u00fc \u2028 \U0001f600",
            None,
            "'$$%s%%'",
        ]
        engine.insert([NewJob("tests.task")] * len(texts), now=NOW)
        jobs = worker.fetch("default", len(texts), me, now=NOW)

        worker.ack(
            [
                ack(
                    job,
                    JobState.DISCARDED,
                    error=json.dumps({"message": text}),
                    result=None if text is None else json.dumps(text),
                )
                for job, text in zip(jobs, texts, strict=True)
            ]
        )

        stored = [engine.get(job.id) for job in jobs]
        assert [job.result for job in stored] == texts
        assert [job.errors for job in stored] == [[{"message": text}] for text in texts]

    @pytest.mark.parametrize("state", [JobState.DISCARDED, JobState.CANCELLED])
    def test_a_job_ends_with_its_error(self, engine, worker, me, state):
        id = insert_one(engine)

        accepted = worker.ack([ack(fetch_one(worker, me), state, error='{"message": "no"}')], now=NOW + SECOND).accepted

        job = engine.get(id)
        assert accepted == {id}
        assert (job.state, job.errors, job.finished_at) == (state, [{"message": "no"}], NOW + SECOND)

    def test_a_job_that_never_began_ends_without_a_start(self, engine, worker, me):
        id = insert_one(engine)

        worker.ack([ack(fetch_one(worker, me), JobState.CANCELLED, is_spent=False)])

        job = engine.get(id)
        assert (job.state, job.started_at, job.attempt) == ("cancelled", None, 0)

    def test_a_failed_job_waits_for_its_delay_and_keeps_every_error(self, engine, worker, me):
        id = insert_one(engine)
        for n in (1, 2):
            at = NOW + n * timedelta(minutes=1)
            claimed = fetch_one(worker, me, now=at)
            error = f'{{"attempt": {n}}}'
            worker.ack([ack(claimed, JobState.RETRYABLE, delay=30.0, error=error)], now=at)
            assert worker.fetch("default", 1, me) == []
            assert worker.stage(now=at + timedelta(seconds=30)).count == 1

        job = engine.get(id)
        assert (job.state, job.attempt, job.claim) == ("available", 2, claimed.claim)
        assert job.errors == [{"attempt": 1}, {"attempt": 2}]

    def test_a_retry_without_a_delay_is_available_at_once(self, engine, worker, me):
        id = insert_one(engine)

        worker.ack([ack(fetch_one(worker, me), JobState.RETRYABLE, error="{}")], now=NOW + SECOND)

        job = engine.get(id)
        assert (job.state, job.ready_at, job.attempt) == ("available", NOW + SECOND, 1)
        assert fetch_one(worker, me).attempt == 2

    def test_the_first_start_is_kept_over_retries(self, engine, worker, me):
        id = insert_one(engine)
        worker.ack([ack(fetch_one(worker, me), JobState.RETRYABLE, started=time.monotonic())], now=NOW)
        first = engine.get(id).started_at
        job = fetch_one(worker, me)
        assert job.started_at == first

        worker.ack([ack(job, started=time.monotonic())], now=NOW + timedelta(hours=1))

        assert abs(first - NOW) < SECOND
        assert engine.get(id).started_at == first

    def test_a_snoozed_job_waits_and_has_spent_nothing(self, engine, worker, me):
        id = insert_one(engine)
        claimed = fetch_one(worker, me)

        worker.ack([ack(claimed, JobState.SCHEDULED, delay=60.0, is_spent=False)], now=NOW)

        job = engine.get(id)
        assert (job.state, job.attempt, job.claim) == ("scheduled", 0, claimed.claim)
        assert job.scheduled_at == NOW + timedelta(seconds=60)
        assert job.meta == {"snoozed": 1}

    def test_a_snooze_of_no_time_goes_to_the_back_of_the_queue_and_is_counted(self, engine, worker, me):
        first, second = ids(insert(engine, 2))

        worker.ack([ack(fetch_one(worker, me), JobState.SCHEDULED, is_spent=False)], now=NOW + SECOND)

        assert (engine.get(first).state, engine.get(first).meta) == ("available", {"snoozed": 1})
        jobs = worker.fetch("default", 2, me)
        assert [(job.id, job.attempt) for job in jobs] == [(second, 1), (first, 1)]

    def test_a_job_handed_back_keeps_its_place_and_its_attempt(self, engine, worker, me):
        first, second = ids(insert(engine, 2))
        claimed = fetch_one(worker, me)

        worker.ack([ack(claimed, JobState.AVAILABLE, is_spent=False)], now=NOW + SECOND)

        job = engine.get(first)
        assert (job.state, job.attempt, job.claim, job.ready_at) == ("available", 0, claimed.claim, NOW)
        assert ids(worker.fetch("default", 2, me)) == [first, second]

    def test_a_batch_may_hold_every_outcome(self, engine, worker, me):
        insert(engine, 5)
        a, b, c, d, e = worker.fetch("default", 5, me)

        accepted = worker.ack(
            [
                ack(e, JobState.AVAILABLE, is_spent=False),
                ack(d, JobState.RETRYABLE, delay=5.0, error="{}"),
                ack(c, JobState.CANCELLED),
                ack(b, JobState.DISCARDED, error='{"why": "so"}'),
                ack(a, result="[1]"),
            ]
        ).accepted

        assert accepted == {a.id, b.id, c.id, d.id, e.id}
        assert [engine.get(job.id).state for job in (a, b, c, d, e)] == [
            "completed", "discarded", "cancelled", "retryable", "available",
        ]  # fmt: skip
        assert [engine.get(job.id).result for job in (a, b)] == [[1], None]
        assert [engine.get(job.id).errors for job in (a, b)] == [[], [{"why": "so"}]]

    def test_a_second_ack_of_one_claim_changes_nothing(self, engine, worker, me):
        id = insert_one(engine)
        job = fetch_one(worker, me)
        worker.ack([ack(job, result="1")])

        assert worker.ack([ack(job, JobState.RETRYABLE)]).accepted == set()
        assert worker.ack([ack(job, JobState.DISCARDED)]).accepted == set()
        assert (engine.get(id).state, engine.get(id).result) == ("completed", 1)

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.RETRYABLE, JobState.AVAILABLE])
    def test_an_ack_of_a_job_that_was_rescued_and_finished_elsewhere_changes_nothing(
        self, engine, worker, me, register, state
    ):
        """B12"""
        id = insert_one(engine)
        stale = fetch_one(worker, me)
        worker.rescue([me])
        worker.ack([ack(fetch_one(worker, register()), result='"second"')])
        before = engine.get(id)

        assert worker.ack([ack(stale, state, result='"first"', error="{}")]).accepted == set()
        assert engine.get(id) == before

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.RETRYABLE, JobState.AVAILABLE])
    def test_an_ack_of_a_job_handed_back_and_fetched_again_by_the_same_worker_changes_nothing(
        self, engine, worker, me, state
    ):
        id = insert_one(engine)
        stale = fetch_one(worker, me)
        worker.ack([ack(stale, JobState.AVAILABLE, is_spent=False)])
        current = fetch_one(worker, me)
        before = engine.get(id)
        assert current.attempt == stale.attempt  # why the attempt cannot be the fence

        assert worker.ack([ack(stale, state)]).accepted == set()
        assert engine.get(id) == before
        assert worker.ack([ack(current)]).accepted == {id}

    def test_an_ack_of_a_job_that_waits_after_its_rescue_changes_nothing(self, engine, worker, me):
        id = insert_one(engine)
        stale = fetch_one(worker, me)
        worker.rescue([me])

        assert worker.ack([ack(stale)]).accepted == set()
        assert engine.get(id).state == "available"

    def test_stale_acks_do_not_harm_their_neighbours(self, engine, worker, me):
        insert(engine, 3)
        a, b, c = worker.fetch("default", 3, me)
        worker.ack([ack(b)])

        assert worker.ack([ack(a), ack(b), ack(c)]).accepted == {a.id, c.id}

    def test_an_ack_of_an_unknown_job_is_not_accepted(self, worker):
        assert worker.ack([Ack(12345, 1, JobState.COMPLETED)]).accepted == set()

    @pytest.mark.parametrize("engine", ["postgres"], indirect=True)
    @pytest.mark.parametrize("result", [r'"\u0000"', "NaN", "{"])
    def test_json_that_the_store_does_not_take_is_said_so(self, engine, worker, me, result):
        id = insert_one(engine)

        with pytest.raises(EngineRefused):
            worker.ack([ack(fetch_one(worker, me), result=result)])

        assert engine.get(id).state == "executing"

    @pytest.mark.parametrize("result", ['"\ud800"'])
    def test_what_cannot_be_stored_is_said_so_and_the_job_can_still_end(self, engine, worker, me, result):
        id = insert_one(engine)
        job = fetch_one(worker, me)

        with pytest.raises(EngineRefused):
            worker.ack([ack(job, result=result)])

        assert engine.get(id).state == "executing"
        assert worker.ack([ack(job, JobState.DISCARDED, error="{}")]).accepted == {id}

    @pytest.mark.parametrize("delay", [1e30, float("inf")])
    def test_an_absurd_delay_is_cut_to_what_can_be_read_again(self, engine, worker, me, delay):
        id = insert_one(engine)

        worker.ack([ack(fetch_one(worker, me), JobState.RETRYABLE, delay=delay)])

        assert engine.get(id).scheduled_at.year < 9999


class TestStage:
    def test_due_jobs_become_available_and_others_wait(self, engine, worker):
        due = insert_one(engine, queue="a", scheduled_at=NOW + SECOND)
        later = insert_one(engine, queue="b", scheduled_at=NOW + 3 * SECOND)

        staged = worker.stage(now=NOW + 2 * SECOND)

        assert staged == Staged(1, ["a"], 1.0)
        assert (engine.get(due).state, engine.get(due).ready_at) == ("available", NOW + 2 * SECOND)
        assert engine.get(later).state == "scheduled"

    def test_with_nothing_to_wait_for_there_is_no_next_time(self, engine, worker):
        insert(engine)

        assert worker.stage(now=NOW) == Staged(0, [], None)

    def test_the_longest_due_come_first_and_no_more_than_the_limit(self, engine, worker):
        late, early, middle = (insert_one(engine, scheduled_at=NOW + n * SECOND) for n in (3, 1, 2))

        staged = worker.stage(2, now=NOW + 10 * SECOND)

        assert staged.count == 2
        assert [engine.get(id).state for id in (early, middle, late)] == [
            "available",
            "available",
            "scheduled",
        ]

    def test_while_due_jobs_remain_the_next_one_is_due_now(self, engine, worker):
        insert(engine, 3, scheduled_at=NOW + SECOND)

        steps = [worker.stage(2, now=NOW + 5 * SECOND) for _ in range(3)]

        assert [step.count for step in steps] == [2, 1, 0]
        assert steps[0].next_in <= 0
        assert [step.next_in for step in steps[1:]] == [None, None]

    def test_the_time_to_the_next_job_is_told_when_some_were_staged_too(self, engine, worker):
        insert(engine, 2, scheduled_at=NOW + SECOND)
        insert(engine, scheduled_at=NOW + 61 * SECOND)

        assert worker.stage(now=NOW + SECOND).next_in == 60.0

    def test_a_job_due_exactly_now_is_due(self, engine, worker):
        insert(engine, scheduled_at=NOW + SECOND)

        assert worker.stage(now=NOW + SECOND).count == 1

    def test_a_staged_job_comes_after_those_that_waited_before_it(self, engine, worker, me):
        delayed = insert_one(engine, scheduled_at=NOW + SECOND)
        waiting = insert_one(engine, now=NOW + 2 * SECOND)
        worker.stage(now=NOW + 3 * SECOND)

        assert ids(worker.fetch("default", 2, me)) == [waiting, delayed]


class TestRetry:
    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.DISCARDED, JobState.CANCELLED])
    def test_a_finished_job_runs_again(self, engine, worker, me, state):
        id = insert_one(engine, expires_at=NOW + SECOND)
        worker.ack([ack(fetch_one(worker, me), state, error='{"n": 1}')])

        [retried] = engine.retry([id], now=NOW + 9 * SECOND)

        assert retried.is_done
        job = engine.get(id)
        assert (job.state, job.ready_at, job.finished_at, job.result) == (
            "available",
            NOW + 9 * SECOND,
            None,
            None,
        )
        assert (job.errors, job.expires_at) == ([{"n": 1}], None)
        assert fetch_one(worker, me).attempt == 2

    def test_an_exhausted_job_gets_one_more_attempt(self, engine, worker, me):
        id = insert_one(engine, max_attempts=1)
        worker.ack([ack(fetch_one(worker, me), JobState.DISCARDED)])

        engine.retry([id])

        job = fetch_one(worker, me)
        assert (job.attempt, job.max_attempts) == (2, 2)

    def test_the_claim_is_not_lowered_by_it(self, engine, worker, me):
        id = insert_one(engine)
        stale = fetch_one(worker, me)
        worker.ack([ack(stale, JobState.DISCARDED)])
        engine.retry([id])
        current = fetch_one(worker, me)

        assert current.claim > stale.claim
        assert worker.ack([ack(stale)]).accepted == set()

    def test_a_job_whose_key_is_held_stays_finished_and_the_holder_is_named(self, engine, worker, me):
        first = insert_one(engine, unique_key="k")
        worker.ack([ack(fetch_one(worker, me), JobState.DISCARDED)])
        second = insert_one(engine, unique_key="k")
        before = engine.get(first)

        [retried] = engine.retry([first])

        assert (retried.is_done, retried.held_by) == (False, second)
        assert engine.get(first) == before

    def test_of_two_finished_jobs_with_one_key_only_one_comes_back(self, engine, worker, me):
        both = []
        for _ in range(2):
            both.append(insert_one(engine, unique_key="k"))
            worker.ack([ack(fetch_one(worker, me))])

        first, second = engine.retry(both)

        assert first.is_done
        assert (second.is_done, second.held_by) == (False, first.id)
        assert engine.get(second.id).state == "completed"

    def test_live_and_unknown_jobs_are_left_alone(self, engine):
        id = insert_one(engine)

        assert [(job.id, job.is_done) for job in engine.retry([id, 999_999])] == [
            (id, False),
            (999_999, False),
        ]

    @in_transactions
    def test_it_joins_the_callers_transaction(self, engine, worker, me):
        id = insert_one(engine)
        worker.ack([ack(fetch_one(worker, me))])

        with transaction.atomic():
            engine.retry([id])
            transaction.set_rollback(True)

        assert engine.get(id).state == "completed"


def finish(engine, worker, me, count=1, state=JobState.COMPLETED, at=NOW, queue="default", task="tests.task"):
    """Jobs that finished at this time."""
    engine.insert([NewJob(task, queue=queue) for _ in range(count)], now=at)
    jobs = worker.fetch(queue, count, me, now=at)
    worker.ack([ack(job, state) for job in jobs], now=at)
    return ids(jobs)


def prune(worker, *rules, limit=1000, **options):
    """A whole pass."""
    place, count = None, 0
    for _ in range(1000):
        pruned = worker.prune(rules, place=place, limit=limit, now=NOW, **options)
        count, place = count + pruned.count, pruned.place
        if place is None:
            return count
    raise AssertionError("a pass without an end")


class TestPrune:
    def test_what_is_older_than_its_rule_goes_and_the_rest_stays(self, engine, worker, me):
        old = finish(engine, worker, me, 2, at=NOW - 61 * SECOND)
        new = finish(engine, worker, me, 2, at=NOW - 59 * SECOND)

        assert prune(worker, PruneRule(JobState.COMPLETED, timedelta(minutes=1))) == 2

        assert [engine.get(id) for id in old] == [None, None]
        assert None not in [engine.get(id) for id in new]

    def test_without_a_rule_nothing_goes(self, engine, worker, me):
        [id] = finish(engine, worker, me, state=JobState.DISCARDED, at=NOW - 3600 * SECOND)

        assert prune(worker) == prune(worker, PruneRule(JobState.COMPLETED, SECOND)) == 0

        assert engine.get(id) is not None

    def test_a_rule_without_a_limit_keeps_for_ever(self, engine, worker, me):
        finish(engine, worker, me, at=NOW - 3600 * SECOND)

        assert prune(worker, PruneRule(JobState.COMPLETED)) == 0

    def test_an_age_of_zero_deletes_all_that_has_finished(self, engine, worker, me):
        finish(engine, worker, me, 3, at=NOW - SECOND)

        assert prune(worker, PruneRule(JobState.COMPLETED, timedelta(0))) == 3

    def test_live_jobs_stay_however_old(self, engine, worker, me):
        insert(engine, 2, now=NOW - 3600 * SECOND)
        worker.fetch("default", 1, me)

        assert prune(worker, *(PruneRule(s, timedelta(0)) for s in (JobState.COMPLETED, JobState.DISCARDED))) == 0

    def test_the_rule_of_the_task_goes_before_that_of_the_queue_and_that_before_the_general_one(
        self, engine, worker, me
    ):
        at = NOW - 3600 * SECOND
        [plain] = finish(engine, worker, me, at=at)
        [mail] = finish(engine, worker, me, at=at, queue="mail")
        [special] = finish(engine, worker, me, at=at, queue="mail", task="tests.special")
        rules = [
            PruneRule(JobState.COMPLETED, SECOND),
            PruneRule(JobState.COMPLETED, None, queue="mail"),
            PruneRule(JobState.COMPLETED, SECOND, task="tests.special"),
        ]

        assert prune(worker, *rules) == 2

        assert [id for id in (plain, mail, special) if engine.get(id)] == [mail]

    def test_by_count_the_newest_stay(self, engine, worker, me):
        every = [finish(engine, worker, me, at=NOW - n * SECOND)[0] for n in range(10)]

        assert prune(worker, PruneRule(JobState.COMPLETED, max_count=3)) == 7

        assert [id for id in every if engine.get(id)] == every[:3]

    def test_a_count_of_zero_keeps_none_and_one_that_is_not_reached_keeps_all(self, engine, worker, me):
        finish(engine, worker, me, 3, at=NOW - SECOND)

        assert prune(worker, PruneRule(JobState.COMPLETED, max_count=3)) == 0
        assert prune(worker, PruneRule(JobState.COMPLETED, max_count=0)) == 3

    def test_each_rule_counts_its_own_jobs(self, engine, worker, me):
        for n in range(1, 4):
            finish(engine, worker, me, at=NOW - n * SECOND)
            finish(engine, worker, me, at=NOW - n * SECOND, queue="mail")
            finish(engine, worker, me, at=NOW - n * SECOND, queue="mail", task="tests.special")
        rules = [
            PruneRule(JobState.COMPLETED, max_count=2),
            PruneRule(JobState.COMPLETED, max_count=1, queue="mail"),
            PruneRule(JobState.COMPLETED, max_count=3, task="tests.special"),
        ]

        assert prune(worker, *rules) == 1 + 2 + 0

    def test_age_and_count_together_let_go_what_either_lets_go(self, engine, worker, me):
        for n in range(1, 11):
            finish(engine, worker, me, at=NOW - n * SECOND)

        assert prune(worker, PruneRule(JobState.COMPLETED, 9.5 * SECOND, max_count=9)) == 1
        assert prune(worker, PruneRule(JobState.COMPLETED, 3.5 * SECOND, max_count=9)) == 6
        assert prune(worker, PruneRule(JobState.COMPLETED, 3.5 * SECOND, max_count=1)) == 2

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    def test_a_pass_in_steps_of_any_size_sees_every_job_once(self, engine, worker, me, limit):
        at = NOW - 3600 * SECOND
        kept = finish(engine, worker, me, 5, at=at, queue="kept")  # many that finished at the same moment
        finish(engine, worker, me, 5, at=at)
        finish(engine, worker, me, 3, at=at + SECOND)
        rules = [PruneRule(JobState.COMPLETED, SECOND), PruneRule(JobState.COMPLETED, queue="kept")]

        assert prune(worker, *rules, limit=limit) == 8

        assert None not in [engine.get(id) for id in kept]

    def test_a_dry_run_counts_and_deletes_nothing(self, engine, worker, me):
        every = finish(engine, worker, me, 4, at=NOW - 3600 * SECOND)
        rule = PruneRule(JobState.COMPLETED, SECOND)

        assert prune(worker, rule, limit=3, is_dry_run=True) == 4

        assert None not in [engine.get(id) for id in every]

    def test_only_the_asked_queue_is_pruned(self, engine, worker, me):
        finish(engine, worker, me, 2, at=NOW - 3600 * SECOND)
        finish(engine, worker, me, 3, at=NOW - 3600 * SECOND, queue="mail")

        assert prune(worker, PruneRule(JobState.COMPLETED, SECOND), queue="mail") == 3


class TestRescue:
    def test_what_ran_spends_its_attempt_and_says_why(self, engine, worker, me):
        id = insert_one(engine)
        job = fetch_one(worker, me)

        rescued = worker.rescue([me], ran={job.id: job.claim}, reason="signal 9", now=NOW + SECOND)

        assert rescued == Rescued(1, 0, ["default"])
        stored = engine.get(id)
        assert (stored.state, stored.attempt, stored.claim, stored.ready_at) == ("available", 1, job.claim, NOW)
        [error] = stored.errors
        assert error["message"] == "signal 9"
        assert error["exception"] == "djqueue.exceptions.WorkerLost"
        assert (error["attempt"], UUID(error["worker"])) == (1, me)
        assert datetime.fromisoformat(error["at"]) == NOW + SECOND

    def test_a_living_worker_takes_back_what_it_does_not_know_of(self, engine, worker, me):
        insert(engine, 3)
        a, b, c = worker.fetch("default", 3, me)

        rescued = worker.reclaim(me, {a.id: a.claim, c.id: c.claim})

        assert rescued == Rescued(1, 0, ["default"])
        assert [(engine.get(job.id).state, engine.get(job.id).attempt) for job in (a, b, c)] == [
            ("executing", 1),
            ("available", 0),
            ("executing", 1),
        ]

    def test_an_older_claim_of_a_kept_job_is_not_the_one_that_is_kept(self, engine, worker, me):
        insert_one(engine)
        first = fetch_one(worker, me)
        worker.rescue([me])
        again = fetch_one(worker, me)

        rescued = worker.reclaim(me, {first.id: first.claim})

        assert rescued.requeued == 1
        assert engine.get(again.id).state == "available"

    def test_what_was_only_claimed_goes_back_unspent(self, engine, worker, me):
        insert(engine, 3)
        a, b, c = worker.fetch("default", 3, me)

        worker.rescue([me], ran={b.id: b.claim})

        assert [(engine.get(job.id).attempt, len(engine.get(job.id).errors)) for job in (a, b, c)] == [
            (0, 0),
            (1, 1),
            (0, 0),
        ]
        assert ids(worker.fetch("default", 3, me)) == [a.id, b.id, c.id]

    def test_a_former_claim_is_no_proof_that_this_one_ran(self, engine, worker, me):
        insert(engine)
        former = fetch_one(worker, me)
        worker.ack([ack(former, JobState.AVAILABLE, is_spent=False)])
        fetch_one(worker, me)

        worker.rescue([me], ran={former.id: former.claim})

        assert engine.get(former.id).attempt == 0

    def test_when_nobody_knows_what_ran_all_of_it_did(self, engine, worker, me):
        jobs = insert(engine, 2)
        worker.fetch("default", 2, me)

        worker.rescue([me])

        assert [engine.get(job.id).attempt for job in jobs] == [1, 1]

    def test_t48_what_was_not_noted_as_begun_goes_back_unspent_and_marked(self, engine, worker, me):
        jobs = insert(engine, 3, max_attempts=1)
        _, b, c = worker.fetch("default", 3, me)
        assert worker.note_begun({b.id: b.claim, c.id: c.claim - 1, 10**9: 1}) == {b.id}
        assert worker.note_begun({b.id: b.claim}) == {b.id}

        rescued = worker.rescue([me], as_noted=True, reason="silent")

        assert (rescued.requeued, rescued.discarded) == (2, 1)
        assert [engine.get(job.id).state for job in jobs] == ["available", "discarded", "available"]
        assert [engine.get(job.id).attempt for job in jobs] == [0, 1, 0]
        assert ['"lost"' in job.meta for job in worker.fetch("default", 3, me)] == [True, True]

    def test_t48_a_note_counts_under_its_claim_only(self, engine, worker, me):
        id = insert_one(engine)
        job = fetch_one(worker, me)
        worker.note_begun({job.id: job.claim})
        worker.ack([ack(job, JobState.AVAILABLE, is_spent=False)])
        fetch_one(worker, me)

        assert worker.rescue([me], as_noted=True).requeued == 1
        assert engine.get(id).attempt == 0

    def test_t48_a_job_that_was_noted_can_be_cancelled_and_acknowledged(self, engine, worker, me):
        a, b = insert(engine, 2)
        jobs = worker.fetch("default", 2, me)
        worker.note_begun({job.id: job.claim for job in jobs})
        engine.cancel([a.id])

        assert worker.ack([ack(jobs[0], JobState.RETRYABLE, delay=9.0), ack(jobs[1])]).accepted == {a.id, b.id}
        assert [engine.get(job.id).state for job in jobs] == ["cancelled", "completed"]

    def test_a_job_that_kills_its_workers_is_discarded_in_the_end(self, engine, worker, register):
        """B20"""
        id = insert_one(engine, max_attempts=3, unique_key="k")
        results = []
        for _ in range(3):
            one = register()
            fetch_one(worker, one)
            worker.bury({one: None})
            results.append(worker.rescue([one], reason="signal 9", now=NOW))

        assert [(result.requeued, result.discarded) for result in results] == [(1, 0), (1, 0), (0, 1)]
        job = engine.get(id)
        assert (job.state, job.attempt, job.finished_at) == ("discarded", 3, NOW)
        assert [error["attempt"] for error in job.errors] == [1, 2, 3]
        assert not insert(engine, unique_key="k")[0].was_duplicate

    def test_an_exhausted_job_that_never_began_is_not_discarded(self, engine, worker, me):
        id = insert_one(engine, max_attempts=1)
        fetch_one(worker, me)

        assert worker.rescue([me], ran={}).requeued == 1
        assert engine.get(id).attempt == 0

    def test_the_living_keep_theirs(self, engine, worker, me, register):
        insert(engine, 2)
        mine = fetch_one(worker, me)
        dead = register()
        theirs = fetch_one(worker, dead)

        assert worker.rescue([dead]).count == 1
        assert engine.get(mine.id).state == "executing"
        assert engine.get(theirs.id).state == "available"

    def test_jobs_of_the_living_do_not_fill_the_page(self, engine, worker, me, register):
        """B16"""
        insert(engine, 40)
        worker.fetch("default", 30, me)
        dead = register()
        orphans = worker.fetch("default", 10, dead)

        rescued = worker.rescue([dead], limit=15)

        assert rescued.requeued == 10
        assert {engine.get(job.id).state for job in orphans} == {"available"}

    def test_no_more_than_the_limit_at_once_and_all_in_the_end(self, engine, worker, me):
        insert(engine, 5)
        worker.fetch("default", 5, me)

        assert [worker.rescue([me], limit=2).count for _ in range(4)] == [2, 2, 1, 0]

    def test_waiting_and_finished_jobs_of_a_dead_worker_stay_as_they_are(self, engine, worker, me):
        insert(engine, 3)
        a, b, c = worker.fetch("default", 3, me)
        worker.ack([ack(a), ack(b, JobState.RETRYABLE, delay=9.0), ack(c, JobState.AVAILABLE, is_spent=False)])
        before = [engine.get(job.id) for job in (a, b, c)]

        assert worker.rescue([me]).count == 0
        assert [engine.get(job.id) for job in (a, b, c)] == before

    def test_no_reason_can_keep_a_job_from_being_rescued(self, engine, worker, me):
        id = insert_one(engine)
        fetch_one(worker, me)

        assert worker.rescue([me], reason="last words: \0 \ud800 'x").requeued == 1
        assert "last words" in engine.get(id).errors[0]["message"]

    def test_thousands_are_rescued_in_one_go(self, engine, worker, me):
        insert(engine, 3000)
        worker.fetch("default", 3000, me)

        assert worker.rescue([me], ran={}).requeued == 3000

    def test_jobs_whose_worker_was_forgotten_are_found(self, engine, worker, me, register):
        """B03"""
        insert(engine, 2, queue="a")
        mine = fetch_one(worker, me, queue="a")
        gone = register()
        orphan = fetch_one(worker, gone, queue="a")
        worker.deregister([gone])

        assert worker.rescue_ownerless() == Rescued(1, 0, ["a"])
        assert engine.get(orphan.id).state == "available"
        assert engine.get(mine.id).state == "executing"
        assert worker.rescue_ownerless() == Rescued()


class TestBeat:
    def test_each_beat_raises_the_counter(self, worker, me):
        beats = [worker.beat([me])[0].beat for _ in range(3)]

        assert beats[0] < beats[1] < beats[2]

    def test_the_answer_names_all_known_workers(self, worker, me, register):
        other = register()
        before = {row.worker: row.beat for row in worker.beat([me])}

        after = {row.worker: row.beat for row in worker.beat([me])}

        assert set(after) == {me, other}
        assert after[me] > before[me]
        assert after[other] == before[other]

    def test_a_worker_that_has_beaten_since_it_was_seen_is_not_buried(self, worker, register):
        one, other, dead = register(), register(), register()
        seen = {beat.worker: beat.beat for beat in worker.beat([])}
        worker.bury({dead: None})
        worker.beat([one])

        assert worker.bury({**seen, uuid4(): 0}) == {one}

        assert {beat.worker for beat in worker.beat([one, other]) if beat.is_dead} == {other, dead}

    def test_a_dead_workers_beat_is_refused(self, worker, me, register):
        other = register()
        worker.bury({me: None})

        rows = [{row.worker: row for row in worker.beat([me, other])} for _ in range(2)]

        assert [row[me].is_dead for row in rows] == [True, True]
        assert rows[0][me].beat == rows[1][me].beat
        assert [row[other].is_dead for row in rows] == [False, False]

    def test_an_unknown_worker_is_missing_from_the_answer(self, worker, me):
        worker.deregister([me])

        assert worker.beat([me]) == []

    def test_nobody_comes_back_to_life_by_registering_again(self, worker, me):
        worker.bury({me: None})

        worker.register([WorkerInfo(id=me, name="again", hostname="h", pid=2, queues={}, concurrency=1)])

        assert [row.is_dead for row in worker.beat([me])] == [True]

    def test_registering_twice_is_registering_once(self, worker, me):
        worker.register([WorkerInfo(id=me, name="again", hostname="h", pid=2, queues={}, concurrency=1)])

        assert len(worker.beat([me])) == 1

    def test_whoever_looks_on_does_not_beat(self, worker, me):
        assert worker.beat([]) == worker.beat([])


class TestElect:
    def test_one_leads_and_the_other_does_not(self, worker):
        one, two = uuid4(), uuid4()

        assert worker.elect(one, 10.0, now=NOW) == Lease(True, 1)
        assert not worker.elect(two, 10.0, now=NOW + 9 * SECOND).is_held

    def test_a_renewal_keeps_the_term_and_moves_the_end(self, worker):
        one, two = uuid4(), uuid4()
        worker.elect(one, 10.0, now=NOW)

        assert worker.elect(one, 10.0, now=NOW + 8 * SECOND) == Lease(True, 1)
        assert not worker.elect(two, 10.0, now=NOW + 17 * SECOND).is_held

    def test_a_lease_that_ran_out_goes_to_the_next_and_the_term_grows(self, worker):
        one, two = uuid4(), uuid4()
        worker.elect(one, 10.0, now=NOW)

        assert worker.elect(two, 10.0, now=NOW + 11 * SECOND) == Lease(True, 2)
        assert not worker.elect(one, 10.0, now=NOW + 12 * SECOND).is_held
        assert worker.elect(one, 10.0, now=NOW + 30 * SECOND) == Lease(True, 3)

    def test_who_resigns_is_followed_at_once(self, worker):
        one, two = uuid4(), uuid4()
        worker.elect(one, 10.0, now=NOW)
        worker.resign(two)
        assert not worker.elect(two, 10.0, now=NOW).is_held

        worker.resign(one)

        assert worker.elect(two, 10.0, now=NOW) == Lease(True, 2)

    def test_of_many_who_want_to_lead_one_does(self, open_worker):
        barrier = threading.Barrier(4)
        leases = []

        def run(worker):
            barrier.wait()
            leases.append(worker.elect(uuid4(), 10.0))

        threads = [threading.Thread(target=run, args=(open_worker(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sum(lease.is_held for lease in leases) == 1


class TestCounts:
    def test_an_empty_store_counts_nothing(self, engine):
        assert engine.counts() == []

    def test_jobs_are_counted_by_queue_and_state(self, engine, worker, me):
        insert(engine, 3, queue="a")
        insert(engine, queue="b", scheduled_at=NOW + SECOND)
        fetch_one(worker, me, queue="a")
        worker.ack([ack(fetch_one(worker, me, queue="a"))])

        counts = {row.queue: row.states for row in engine.counts()}

        assert counts == {"a": {"available": 1, "executing": 1}, "b": {"scheduled": 1}}

    def test_it_says_how_long_the_oldest_available_job_has_waited(self, engine, worker, me):
        now = datetime.now(UTC)
        insert(engine, queue="a", now=now - timedelta(hours=2))
        insert(engine, queue="a", now=now - timedelta(hours=1))
        worker.fetch("a", 1, me)
        insert(engine, queue="b", delay=SECOND * 99)

        oldest = {row.queue: row.oldest_available_seconds for row in engine.counts()}

        assert oldest["a"] == pytest.approx(3600, abs=60)
        assert oldest["b"] is None


class TestListener:
    def test_a_sleeper_is_woken_by_an_insert(self, engine, listener):
        listener.mark(["default"])

        insert(engine)

        assert listener.wait(LONG) == {"default"}

    @in_transactions
    def test_a_sleeper_is_woken_after_the_commit_and_not_before(self, engine, listener):
        listener.mark(["default"])

        with transaction.atomic():
            insert(engine)
            assert listener.wait(QUIET) == set()

        assert listener.wait(LONG) == {"default"}

    @in_transactions
    def test_a_rollback_wakes_nobody(self, engine, listener):
        listener.mark(["default"])

        with transaction.atomic():
            insert(engine)
            transaction.set_rollback(True)

        assert listener.wait(QUIET) == set()

    @in_transactions
    def test_the_rollback_of_a_savepoint_wakes_nobody(self, engine, listener):
        listener.mark(["default"])

        with transaction.atomic(), transaction.atomic():
            insert(engine)
            transaction.set_rollback(True)

        assert listener.wait(QUIET) == set()

    @in_transactions
    def test_a_job_after_a_rolled_back_savepoint_wakes(self, engine, listener):
        listener.mark(["default", "other"])

        with transaction.atomic():
            with transaction.atomic():
                insert(engine, queue="other")
                transaction.set_rollback(True)
            insert(engine)

        assert listener.wait(LONG) == {"default"}

    def test_jobs_that_wait_and_duplicates_wake_nobody(self, engine, listener):
        insert(engine, unique_key="k")
        listener.mark(["default"])

        insert(engine, scheduled_at=NOW + SECOND)
        insert(engine, unique_key="k")

        assert listener.wait(QUIET) == set()

    def test_another_queue_wakes_nobody(self, engine, listener):
        listener.mark(["default"])

        insert(engine, queue="other")

        assert listener.wait(QUIET) == set()

    def test_who_sleeps_on_several_queues_is_woken_by_each(self, engine, listener):
        listener.mark(["a", "b"])
        insert(engine, queue="b")
        assert listener.wait(LONG) == {"b"}

        listener.mark(["a", "b"])
        insert(engine, queue="a")
        assert listener.wait(LONG) == {"a"}

    def test_a_long_queue_name_wakes_too(self, engine, listener):
        queue = "q" * 128
        listener.mark([queue])

        insert(engine, queue=queue)

        assert listener.wait(LONG) == {queue}

    def test_all_who_sleep_on_a_queue_are_woken(self, engine, open_listener):
        sleepers = [open_listener() for _ in range(3)]
        for sleeper in sleepers:
            sleeper.mark(["default"])

        insert(engine)

        assert [sleeper.wait(LONG) for sleeper in sleepers] == [{"default"}] * 3

    def test_what_arrives_between_mark_and_wait_is_not_missed(self, engine, listener):
        listener.mark(["default"])
        insert(engine)
        listener.mark(["default", "other"])  # talks to the store, and the wake-up may come along with its answer

        assert listener.wait(LONG) == {"default"}

    def test_who_marks_again_before_each_sleep_is_woken_for_each_job(self, engine, listener):
        for _ in range(3):
            listener.mark(["default"])
            insert(engine)
            assert listener.wait(LONG) == {"default"}

    def test_who_marks_anew_has_to_look_once_more(self, listener):
        assert not listener.mark(["a"])
        assert listener.mark(["a"])
        assert not listener.mark(["a", "b"])
        assert listener.mark(["b"])
        listener.unmark(["a"])
        assert listener.mark(["b"])
        assert not listener.mark(["a", "b"])
        listener.unmark()
        assert not listener.mark(["b"])

    def test_the_other_sleepers_are_woken_when_one_has_given_its_mark_up(self, engine, open_listener):
        first, *others = [open_listener() for _ in range(3)]
        for each in (first, *others):
            each.mark(["default"])

        first.unmark()
        insert(engine)

        assert [other.wait(LONG) for other in others] == [{"default"}] * 2

    def test_an_interruption_ends_the_wait(self, listener):
        listener.mark(["default"])
        threading.Timer(0.05, listener.interrupt).start()

        started = time.monotonic()
        assert listener.wait(LONG) == set()
        assert time.monotonic() - started < LONG / 2

    def test_an_interruption_before_the_wait_ends_it_too_and_only_this_one(self, listener):
        for _ in range(3):
            listener.interrupt()

        started = time.monotonic()
        listener.wait(LONG)
        assert time.monotonic() - started < LONG / 2
        started = time.monotonic()
        listener.wait(QUIET)
        assert time.monotonic() - started >= QUIET * 0.9

    def test_an_interruption_after_the_end_is_harmless(self, listener):
        listener.close()
        listener.close()

        listener.interrupt()

    @pytest.mark.parametrize("state", [JobState.AVAILABLE, JobState.RETRYABLE])
    def test_a_job_put_back_wakes(self, engine, worker, me, listener, state):
        insert(engine)
        job = fetch_one(worker, me)
        listener.mark(["default"])

        worker.ack([ack(job, state, is_spent=False)])

        assert listener.wait(LONG) == {"default"}

    def test_a_staged_job_wakes(self, engine, worker, listener):
        insert(engine, scheduled_at=NOW + SECOND)
        listener.mark(["default"])

        worker.stage(now=NOW + SECOND)

        assert listener.wait(LONG) == {"default"}

    def test_a_rescued_job_wakes(self, engine, worker, me, listener):
        insert(engine)
        fetch_one(worker, me)
        listener.mark(["default"])

        worker.rescue([me])

        assert listener.wait(LONG) == {"default"}

    def test_a_retried_job_wakes(self, engine, worker, me, listener):
        id = insert_one(engine)
        worker.ack([ack(fetch_one(worker, me))])
        listener.mark(["default"])

        engine.retry([id])

        assert listener.wait(LONG) == {"default"}

    def test_a_wake_wakes(self, worker, listener):
        listener.mark(["default"])

        worker.wake(["default", "other"])
        worker.wake([])

        assert listener.wait(LONG) == {"default"}
