"""Unique keys when two connections meet, in a forced order and in none."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction

from djqueue.engines.postgres import unique
from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.jobs.records import LIVE_ONLY, Ack, InsertedJob, NewJob, UniqueRule
from djqueue.jobs.states import JobState
from djqueue.models import Job, UniqueKey
from tests.engines.test_unique import COMPLETED, DEBOUNCE, FOLLOW_UP, REPLACE, RULES, WINDOW, fetch, insert
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

LONG = 20.0
LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def session(engine: PostgresEngine) -> Iterator[psycopg.Connection]:
    """A connection that stops between a statement and its commit."""
    with connect(engine.alias, "race") as session:
        session.autocommit = False
        yield session
        session.rollback()


def wait_until_somebody_is_blocked() -> None:
    until = time.monotonic() + LONG
    with connect("default", "watch") as watch:
        while time.monotonic() < until:
            row = watch.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
            if row and row[0]:
                return
            time.sleep(0.005)  # the server tells nobody when a session begins to wait
    raise AssertionError("nobody waits")


@contextmanager
def isolation(level: str) -> Iterator[None]:
    """The level that the application set for its connection."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET default_transaction_isolation = '{level.lower()}'")
    try:
        yield
    finally:
        connection.close()


def elsewhere(pool: ThreadPoolExecutor, function: Callable[[], object]) -> Future:
    """Run it on another connection of Django's."""

    def run() -> object:
        try:
            return function()
        finally:
            connections["default"].close()

    return pool.submit(run)


class TestUncommittedTwin:
    @contextmanager
    def held_open(self, pool: ThreadPoolExecutor, engine: PostgresEngine, rule: UniqueRule, *, commit: bool):
        """A job inserted in a transaction that ends, one way or the other, as soon as somebody waits for it."""
        inserted = threading.Event()

        def first() -> InsertedJob:
            with transaction.atomic():
                job = insert(engine, rule)
                inserted.set()
                wait_until_somebody_is_blocked()
                transaction.set_rollback(not commit)
                return job

        future = elsewhere(pool, first)
        assert inserted.wait(LONG)
        yield future
        future.result(LONG)

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("in_transaction", [False, True], ids=["autocommit", "transaction"])
    def test_p25_one_that_rolls_back_is_waited_for_and_replaced(self, engine, pool, rule, level, in_transaction):
        with isolation(level), self.held_open(pool, engine, rule, commit=False):
            if in_transaction:
                with transaction.atomic():
                    second = insert(engine, rule)
            else:
                second = insert(engine, rule)

        assert not second.was_duplicate
        assert [job.pk for job in Job.objects.all()] == [second.id]

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("level", LEVELS)
    def test_p9_one_that_commits_is_waited_for_and_answers_in_autocommit_at_any_level(self, engine, pool, rule, level):
        with isolation(level), self.held_open(pool, engine, rule, commit=True) as first:
            second = insert(engine, rule)

        assert (second.id, second.was_duplicate) == (first.result().id, True)

    @pytest.mark.parametrize("rule", RULES)
    def test_one_that_commits_answers_in_a_transaction_at_read_committed(self, engine, pool, rule):
        with self.held_open(pool, engine, rule, commit=True) as first, transaction.atomic():
            second = insert(engine, rule)

        assert (second.id, second.was_duplicate) == (first.result().id, True)

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("level", LEVELS[1:])
    def test_p9_one_that_commits_after_a_snapshot_is_the_transactions_own_serialization_failure(
        self, engine, pool, rule, level
    ):
        with isolation(level):
            with self.held_open(pool, engine, rule, commit=True) as first:
                with pytest.raises(OperationalError, match="could not serialize access"), transaction.atomic():
                    insert(engine, rule)
            with transaction.atomic():
                again = insert(engine, rule)

        assert (again.id, again.was_duplicate) == (first.result().id, True)

    @pytest.mark.parametrize("rule", RULES)
    def test_two_bulks_with_the_same_keys_in_opposite_order_do_not_wait_for_each_other_for_ever(
        self, engine, pool, rule
    ):
        keys = [f"k{n}" for n in range(300)]
        start = threading.Barrier(2)

        def bulk(keys: list[str]) -> list[InsertedJob]:
            start.wait(LONG)
            return engine.insert([NewJob("tests.task", unique_key=key) for key in keys], rule=rule)

        bulks = [elsewhere(pool, lambda keys=keys: bulk(keys)) for keys in (keys, keys[::-1])]

        there, back = (future.result(LONG) for future in bulks)
        assert Job.objects.count() == 300
        assert [job.id for job in there] == [job.id for job in back][::-1]
        assert all(a.was_duplicate != b.was_duplicate for a, b in zip(there, back[::-1], strict=True))


class TestLocks:
    """What a duplicate in an open transaction may not do to others."""

    @pytest.mark.parametrize("rule", RULES)
    def test_it_does_not_keep_a_running_job_from_being_acked(self, engine, worker, me, rule):
        insert(engine, rule)
        job = fetch(worker, me)

        with transaction.atomic():
            insert(engine, rule)

            assert worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)]).accepted == {job.id}

    def test_not_even_when_the_job_was_claimed_while_the_duplicate_waited_for_its_row(
        self, engine, pool, session, worker, me
    ):
        first = insert(engine, REPLACE, args="[1]")
        session.execute(
            "UPDATE djqueue_job SET state = 'executing', attempt = 1, claim = 1, attempted_by = %s, attempted_at = now() "
            "WHERE id = %s",
            [me, first.id],
        )

        def twin_and_ack() -> tuple[InsertedJob, set[int]]:
            with transaction.atomic():
                twin = insert(engine, REPLACE, args="[2]")
                return twin, worker.ack([Ack(first.id, 1, JobState.COMPLETED)]).accepted

        both = elsewhere(pool, twin_and_ack)
        wait_until_somebody_is_blocked()
        session.commit()

        twin, accepted = both.result(LONG)
        assert (twin.id, twin.state) == (first.id, "executing")
        assert accepted == {first.id}

    def test_a_follow_up_that_is_being_changed_does_not_keep_its_predecessor_from_being_acked(self, engine, worker, me):
        insert(engine, FOLLOW_UP)
        job = fetch(worker, me)
        next = insert(engine, FOLLOW_UP, args="[2]")

        with transaction.atomic():
            insert(engine, FOLLOW_UP, args="[3]")
            assert worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)]).accepted == {job.id}
            assert worker.stage().count == 0
            assert worker.fetch("default", 9, me) == []

        worker.stage()
        claimed = fetch(worker, me)
        assert (claimed.id, claimed.args) == (next.id, "[3]")

    def test_a_follow_up_committed_after_its_predecessor_ended_is_not_lost(self, engine, worker, me):
        insert(engine, FOLLOW_UP)
        job = fetch(worker, me)

        with transaction.atomic():
            next = insert(engine, FOLLOW_UP)
            worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)])

        assert next.state == "suspended"
        worker.stage()
        assert fetch(worker, me).id == next.id

    def test_two_duplicates_change_a_job_one_after_the_other_and_the_last_wins(self, engine, pool):
        first = insert(engine, REPLACE, args="[1]")
        with transaction.atomic():
            insert(engine, REPLACE, args="[2]")
            later = elsewhere(pool, lambda: insert(engine, REPLACE, args="[3]"))
            wait_until_somebody_is_blocked()

        assert later.result(LONG).id == first.id
        assert engine.get(first.id).args == [3]

    def test_duplicates_of_a_held_period_do_not_wait_for_each_other(self, engine, pool, worker, me):
        first = insert(engine, WINDOW)
        job = fetch(worker, me)
        worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)])

        with transaction.atomic():
            insert(engine, WINDOW)
            assert elsewhere(pool, lambda: insert(engine, WINDOW)).result(LONG).id == first.id


class TestHoldThatIsOver:
    def test_of_two_who_find_it_one_gets_the_key(self, engine, pool, worker, me):
        insert(engine, COMPLETED)
        job = fetch(worker, me)
        worker.ack([Ack(job.id, job.claim, JobState.DISCARDED)])

        with transaction.atomic():
            mine = insert(engine, COMPLETED)
            theirs = elsewhere(pool, lambda: insert(engine, COMPLETED))
            wait_until_somebody_is_blocked()

        assert not mine.was_duplicate
        assert (theirs.result(LONG).id, theirs.result().was_duplicate) == (mine.id, True)

    def test_a_row_of_a_job_that_was_refused_is_removed_at_once(self, engine, pool, session):
        session.execute(
            "INSERT INTO djqueue_job (state, queue, task, inserted_at, ready_at, unique_key) "
            "VALUES ('available', 'default', 'tests.task', now(), now(), 'k')"
        )
        later = elsewhere(pool, lambda: insert(engine, WINDOW))
        wait_until_somebody_is_blocked()
        session.commit()

        assert later.result(LONG).was_duplicate
        assert not UniqueKey.objects.exists()

    def test_the_key_is_read_and_the_holder_gone_so_the_insert_is_done_again(self, engine, worker, me, monkeypatch):
        insert(engine)
        job = fetch(worker, me)
        execute = unique.Insertion._execute

        def with_an_ack_in_between(self, name, params):
            if name == "holders":
                worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)])
            return execute(self, name, params)

        monkeypatch.setattr(unique.Insertion, "_execute", with_an_ack_in_between)

        assert not insert(engine).was_duplicate


SHORT = timedelta(milliseconds=30)


@pytest.mark.parametrize(
    "rule",
    [LIVE_ONLY, REPLACE, DEBOUNCE, UniqueRule(window=SHORT), UniqueRule(window=SHORT, holds_completed=True)],
)
def test_twelve_threads_that_enqueue_one_key_never_make_two_live_jobs(engine, worker, me, open_worker, rule):
    """Beside them one runs the jobs, one stages, and one retries what is finished."""
    stop = threading.Event()
    problems: list[str] = []
    ids: set[int] = set()

    def repeat(step: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                step()
        except Exception as error:
            problems.append(repr(error))
            stop.set()
        finally:
            connections["default"].close()

    def enqueue() -> None:
        if random.random() < 0.5:
            ids.add(insert(engine, rule, now=None).id)
        else:
            with transaction.atomic():
                job = insert(engine, rule, now=None)
                transaction.set_rollback(random.random() < 0.3)
            ids.add(job.id)

    def execute(worker: Roles, me: UUID) -> None:
        for job in worker.fetch("default", 5, me):
            state = random.choice([JobState.COMPLETED, JobState.DISCARDED, JobState.RETRYABLE])
            worker.ack([Ack(job.id, job.claim, state, delay=random.choice([0, 0.01]))])

    def look() -> None:
        with connect("default", "look") as watch:
            row = watch.execute("SELECT count(*) FROM djqueue_job WHERE unique_key = 'k'").fetchone()
            running = watch.execute("SELECT count(*) FROM djqueue_job WHERE state = 'executing'").fetchone()
        if row[0] > 1 or running[0] > 1:
            problems.append(f"{row[0]} live jobs of one key, {running[0]} running")

    runner, stager = open_worker(), open_worker()

    def retry() -> None:
        known = sorted(ids)
        engine.retry(random.sample(known, min(3, len(known))))

    steps: list[Callable[[], object]] = [enqueue] * 12
    steps += [
        lambda: execute(runner, me),
        lambda: stager.stage(),
        retry,
        look,
    ]
    with ThreadPoolExecutor(len(steps)) as pool:
        for step in steps:
            pool.submit(repeat, step)
        time.sleep(3)  # the time that the threads have to meet
        stop.set()

    assert problems == []
    assert len(ids) > 1
