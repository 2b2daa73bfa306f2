"""Races with a forced order: two or three connections, of which one waits where the other must come first.

The last class has no forced order: it runs what may meet for a while and looks for what may never be seen.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import psycopg
import pytest
from django.db import connection, connections, transaction

from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.statements import sql
from djqueue.jobs.records import Ack, InsertedJob, NewJob
from djqueue.jobs.states import JobState

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

LONG = 20.0


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


@pytest.fixture
def session(engine: PostgresEngine) -> Iterator[psycopg.Connection]:
    """A connection that stops between a statement and its commit."""
    with connect(engine.alias, "race") as session:
        session.autocommit = False
        yield session


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def wait_until_somebody_is_blocked() -> None:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if cursor.fetchone()[0]:
                return
        time.sleep(0.005)  # the server tells nobody when a session begins to wait
    raise AssertionError("nobody waits")


def in_thread(engine: PostgresEngine, function: Callable[[], object]) -> Callable[[], object]:
    """Close the thread's connection of Django at its end."""

    def run() -> object:
        try:
            return function()
        finally:
            connections[engine.alias].close()

    return run


def complete(job, **fields) -> Ack:
    return Ack(job.id, job.claim, JobState.COMPLETED, **fields)


def ack_params(job) -> dict[str, object]:
    one = {"id": [job.id], "claim": [job.claim], "state": ["completed"], "is_spent": [True]}
    return {
        **one,
        "started_ago": [0.0],
        "finished_ago": [0.0],
        "result": ['"first"'],
        "error": [],
        "now": None,
    }


def rescue_params(worker) -> dict[str, object]:
    nobody: dict[str, object] = {"ran_id": None, "ran_claim": None, "as_noted": False, "kept_id": [], "kept_claim": []}
    return {"workers": [worker], **nobody, "reason": "", "limit": 100, "now": None}


class TestAckAgainstRescue:
    def test_an_ack_that_waits_for_the_rescue_is_stale(self, engine, worker, me, session, background):
        [inserted] = engine.insert([NewJob("tests.task")])
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("rescue"), rescue_params(me))

        accepted = background.submit(worker.ack, [complete(job)])
        wait_until_somebody_is_blocked()
        session.commit()

        assert accepted.result(LONG).accepted == set()
        assert engine.get(inserted.id).state == "available"

    def test_an_ack_that_waits_for_a_rescue_that_is_undone_counts(self, engine, worker, me, session, background):
        engine.insert([NewJob("tests.task")])
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("rescue"), rescue_params(me))

        accepted = background.submit(worker.ack, [complete(job)])
        wait_until_somebody_is_blocked()
        session.rollback()

        assert accepted.result(LONG).accepted == {job.id}

    def test_a_rescue_leaves_a_job_to_the_ack_under_way(self, engine, worker, me, session):
        engine.insert([NewJob("tests.task")])
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("ack"), ack_params(job))

        assert worker.rescue([me]).count == 0
        session.commit()

        assert worker.rescue([me]).count == 0
        assert engine.get(job.id).result == "first"

    def test_a_rescue_comes_back_for_a_job_whose_ack_was_undone(self, engine, worker, me, session):
        engine.insert([NewJob("tests.task")])
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("ack"), ack_params(job))
        assert worker.rescue([me]).count == 0

        session.rollback()

        assert worker.rescue([me]).requeued == 1

    def test_an_ack_that_waits_for_its_twin_is_stale(self, engine, worker, me, session, background):
        engine.insert([NewJob("tests.task")])
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("ack"), ack_params(job))

        accepted = background.submit(worker.ack, [complete(job, result='"second"')])
        wait_until_somebody_is_blocked()
        session.commit()

        assert accepted.result(LONG).accepted == set()
        assert engine.get(job.id).result == "first"


class TestUniqueInsert:
    def insert_uncommitted(self, session: psycopg.Connection, *keys: str) -> None:
        columns = {name: [default] * len(keys) for name, default in NewJob("tests.task")._asdict().items()}
        session.execute(sql("insert"), {**columns, "unique_key": list(keys), "now": None, "relaxed": False})

    def insert(self, engine: PostgresEngine, *keys: str) -> list[InsertedJob]:
        run = in_thread(engine, lambda: engine.insert([NewJob("tests.task", unique_key=key) for key in keys]))
        return run()  # type: ignore[return-value]

    def test_a_twin_that_rolls_back_leaves_the_key_to_the_second(self, engine, session, background):
        self.insert_uncommitted(session, "k")

        second = background.submit(self.insert, engine, "k")
        wait_until_somebody_is_blocked()
        session.rollback()

        [job] = second.result(LONG)
        assert not job.was_duplicate
        assert engine.get(job.id).unique_key == "k"

    def test_a_twin_that_commits_is_named_to_the_second(self, engine, session, background):
        self.insert_uncommitted(session, "k")

        second = background.submit(self.insert, engine, "k")
        wait_until_somebody_is_blocked()
        session.commit()

        [job] = second.result(LONG)
        assert job.was_duplicate
        assert engine.get(job.id).unique_key == "k"

    def test_two_bulks_with_the_same_keys_in_another_order_do_not_deadlock(self, engine, background):
        keys = [f"k{n}" for n in range(300)]
        for _ in range(10):
            orders = [random.sample(keys, len(keys)) for _ in range(4)]
            answers = list(background.map(lambda order: self.insert(engine, *order), orders, timeout=LONG))

            assert sum(not job.was_duplicate for jobs in answers for job in jobs) == len(keys)
            with connection.cursor() as cursor:
                cursor.execute("DELETE FROM djqueue_job")

    def test_an_insert_against_the_end_of_the_holder_never_loses_the_job(self, engine, open_worker, me, background):
        """The holder finishes between the insert that it refused and the look for its id."""
        finisher = open_worker()
        stop = threading.Event()

        def finish() -> None:
            while not stop.is_set():
                finisher.ack([complete(job) for job in finisher.fetch("default", 10, me)])

        running = background.submit(finish)
        try:
            for _ in range(300):
                [job] = engine.insert([NewJob("tests.task", unique_key="k")])
                assert engine.get(job.id) is not None
        finally:
            stop.set()
            running.result(LONG)


class TestFetchAgainstFetch:
    def test_a_fetch_passes_by_what_another_is_claiming(self, engine, worker, me, session):
        jobs = engine.insert([NewJob("tests.task")] * 4)
        rows = session.execute(sql("fetch"), {"queue": "default", "limit": 2, "worker": me, "now": None}).fetchall()

        claimed = worker.fetch("default", 4, me)

        assert [row[0] for row in rows] == [jobs[0].id, jobs[1].id]
        assert [job.id for job in claimed] == [jobs[2].id, jobs[3].id]

    def test_a_claim_that_is_undone_is_claimed_by_the_next(self, engine, worker, me, session):
        engine.insert([NewJob("tests.task")])
        session.execute(sql("fetch"), {"queue": "default", "limit": 1, "worker": me, "now": None})
        assert worker.fetch("default", 1, me) == []

        session.rollback()

        [job] = worker.fetch("default", 1, me)
        assert (job.attempt, job.claim) == (1, 1)

    def test_many_at_once_claim_each_job_once(self, engine, open_worker, me, background):
        count = 4000
        engine.insert([NewJob("tests.task")] * count)

        def drain(worker) -> list[tuple[int, int]]:
            found = []
            while jobs := worker.fetch("default", random.randint(1, 100), me):
                found += [(job.id, job.claim) for job in jobs]
            return found

        found = [pair for part in background.map(drain, [open_worker() for _ in range(4)], timeout=60) for pair in part]

        assert len(found) == len(set(found)) == count

    def test_a_worker_that_is_buried_while_it_fetches_leaves_nothing_that_a_later_rescue_misses(
        self, engine, worker, me, session
    ):
        [job] = engine.insert([NewJob("tests.task")])
        session.execute(sql("fetch"), {"queue": "default", "limit": 1, "worker": me, "now": None})
        worker.bury({me: None})
        assert worker.rescue([me]).count == 0

        session.commit()

        assert worker.rescue([me], ran={}).requeued == 1
        assert engine.get(job.id).attempt == 0


class TestBeatAgainstBurial:
    def test_a_beat_that_waits_for_the_burial_is_refused(self, worker, me, session, background):
        session.execute(sql("bury"), {"workers": [me], "beats": [None]})

        rows = background.submit(worker.beat, [me])
        wait_until_somebody_is_blocked()
        session.commit()

        assert [row.is_dead for row in rows.result(LONG)] == [True]

    def test_a_burial_that_waits_for_a_beat_spares_the_worker(self, worker, me, session, background):
        [(_, beat, _)] = session.execute(sql("beat"), {"workers": [me], "draining": []})

        spared = background.submit(worker.bury, {me: beat})
        wait_until_somebody_is_blocked()
        session.commit()

        assert spared.result(LONG) == {me}
        assert [row.is_dead for row in worker.beat([me])] == [False]


class TestWakeUps:
    def test_no_wake_up_is_lost_between_mark_and_look(self, engine, worker, me, open_listener, background):
        """Mark-then-look against commit-then-ask: a sleeper either sees the job or is woken. The pauses are random."""
        count = 1500
        listener = open_listener()

        def enqueue() -> None:
            chance = random.Random(1)
            for _ in range(count):
                if chance.random() < 0.5:
                    with transaction.atomic():
                        engine.insert([NewJob("tests.task")])
                else:
                    engine.insert([NewJob("tests.task")])
                if chance.random() < 0.7:
                    time.sleep(chance.expovariate(1 / 0.001))  # so that the sleeper is met at every point of its loop

        enqueuer = background.submit(in_thread(engine, enqueue))
        seen = sleeps = 0
        while seen < count:
            listener.unmark()
            if jobs := worker.fetch("default", 10, me):
                seen += len(jobs)
                continue
            listener.mark(["default"])
            if jobs := worker.fetch("default", 10, me):
                seen += len(jobs)
                continue
            sleeps += 1
            started = time.monotonic()
            listener.wait(LONG)
            assert time.monotonic() - started < LONG / 2, f"a wake-up was lost after {seen} jobs"
        enqueuer.result(LONG)
        assert sleeps > 50

    def test_no_wake_up_is_lost_while_a_mark_stands(self, engine, worker, me, open_listener, background):
        """One look per wake-up, and none after it: what that look did not see wakes anew. The pauses are random."""
        count = 1500
        listener = open_listener()

        def enqueue() -> None:
            chance = random.Random(2)
            for _ in range(count):
                engine.insert([NewJob("tests.task")])
                if chance.random() < 0.7:
                    time.sleep(chance.expovariate(1 / 0.001))

        enqueuer = background.submit(in_thread(engine, enqueue))
        seen = sleeps = 0
        while seen < count:
            jobs = worker.fetch("default", 10, me)
            seen += len(jobs)
            if len(jobs) < 10 and seen < count and listener.mark(["default"]):
                sleeps += 1
                started = time.monotonic()
                listener.wait(LONG)
                assert time.monotonic() - started < LONG / 2, f"a wake-up was lost after {seen} jobs"
        enqueuer.result(LONG)
        assert sleeps > 50

    @pytest.mark.parametrize("order", ["commit look ask", "commit ask look", "look commit ask"])
    def test_in_every_order_a_sleeper_whose_mark_stands_sees_the_job_or_is_woken(
        self, engine, worker, me, listener, session, order
    ):
        silent = PostgresEngine(engine.alias, listen=False)
        steps = {
            "commit": lambda: silent.insert([NewJob("tests.task")]),
            "look": lambda: worker.fetch("default", 1, me),
            "ask": lambda: session.execute(sql("wake"), {"queues": ["default"]}) and session.commit(),
        }
        assert not listener.mark(["default"])
        assert worker.fetch("default", 1, me) == []

        results = {step: steps[step]() for step in order.split()}

        assert listener.mark(["default"])
        assert results["look"] or listener.wait(LONG) == {"default"}

    @pytest.mark.parametrize("order", ["unmark commit ask", "commit unmark ask", "commit ask unmark"])
    def test_in_every_order_of_a_mark_given_up_another_sleeper_is_woken(
        self, engine, worker, me, open_listener, session, order
    ):
        """The first is busy from now on and looks no more; the second slept by its mark."""
        silent = PostgresEngine(engine.alias, listen=False)
        busy, sleeper = open_listener(), open_listener()
        assert not busy.mark(["default"])
        assert not sleeper.mark(["default"])
        assert worker.fetch("default", 1, me) == []
        assert sleeper.mark(["default"])
        steps = {
            "unmark": lambda: busy.unmark(["default"]),
            "commit": lambda: silent.insert([NewJob("tests.task")]),
            "ask": lambda: session.execute(sql("wake"), {"queues": ["default"]}) and session.commit(),
        }

        for step in order.split():
            steps[step]()

        assert sleeper.wait(LONG) == {"default"}
        assert len(worker.fetch("default", 1, me)) == 1

    @pytest.mark.parametrize("order", ["commit mark look ask", "mark commit look ask", "mark commit ask look",
                                       "mark look commit ask", "commit mark ask look", "commit ask mark look"])  # fmt: skip
    def test_in_every_order_the_sleeper_sees_the_job_or_is_woken(self, engine, worker, me, listener, session, order):
        steps = {
            "commit": lambda: engine.insert([NewJob("tests.task", scheduled_at=None)]),
            "mark": lambda: listener.mark(["default"]),
            "look": lambda: worker.fetch("default", 1, me),
            "ask": lambda: session.execute(sql("wake"), {"queues": ["default"]}) and session.commit(),
        }
        silent = PostgresEngine(engine.alias, listen=False)
        steps["commit"] = lambda: silent.insert([NewJob("tests.task")])

        results = {step: steps[step]() for step in order.split()}

        assert results["look"] or listener.wait(LONG) == {"default"}


class TestReaders:
    @pytest.mark.timeout(60)
    def test_a_job_is_never_seen_in_neither_or_in_both_tables(self, engine, open_worker, me, background):
        [job] = engine.insert([NewJob("tests.task", max_attempts=1_000_000)])
        stop = threading.Event()
        worker = open_worker()

        def move() -> int:
            moves = 0
            while not stop.is_set():
                [claimed] = worker.fetch("default", 1, me)
                assert worker.ack([complete(claimed)]).accepted == {job.id}
                [retried] = engine.retry([job.id])
                assert retried.is_done
                moves += 2
            return moves

        def read() -> int:
            reads = 0
            with connect(engine.alias, "reader") as session:
                while not stop.is_set():
                    rows = session.execute(sql("get"), {"id": job.id}).fetchall()
                    assert len(rows) == 1
                    reads += 1
            return reads

        tasks = [background.submit(in_thread(engine, move))] + [background.submit(read) for _ in range(2)]
        stop.wait(3)  # how long to look
        stop.set()

        moves, *reads = [task.result(LONG) for task in tasks]
        assert moves > 100
        assert sum(reads) > 1000


class TestEverythingAtOnce:
    @pytest.mark.timeout(120)
    def test_no_deadlock_is_seen_and_no_job_is_lost(self, engine, open_worker, register, background):
        """B89. Two of each: whoever may meet on the same rows.

        Two batches of stale outcomes may wait for each other (a row stays locked whose claim turns out to be another's, and the
        planner chooses the order in which a small table is read). The server ends that and the engine tries again;
        locking all rows in order beforehand would cost every ack more than this costs anybody.
        """
        count = 1000
        engine.insert([NewJob("tests.task", max_attempts=1_000_000, unique_key=f"k{n}") for n in range(count)])
        ids = [row.id for row in engine.insert([NewJob("tests.task", unique_key=f"k{n}") for n in range(count)])]
        stop = threading.Event()
        errors: list[BaseException] = []
        owners = [register(), register()]

        def loop(step: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                try:
                    while not stop.is_set():
                        step()
                except BaseException as error:  # whatever it is, the test must show it
                    errors.append(error)
                    stop.set()
                finally:
                    connections[engine.alias].close()

            return run

        def execute_jobs(worker, me) -> None:
            chance = random.Random()
            outcomes = [
                (JobState.COMPLETED, 0.0, True),
                (JobState.DISCARDED, 0.0, True),
                (JobState.RETRYABLE, 0.01, True),
                (JobState.RETRYABLE, 0.0, True),
                (JobState.AVAILABLE, 0.0, False),
            ]
            acks = []
            for job in worker.fetch("default", 200, me):
                state, delay, is_spent = chance.choice(outcomes)
                acks.append(Ack(job.id, job.claim, state, delay=delay, is_spent=is_spent, error="{}"))
            chance.shuffle(acks)
            worker.ack(acks)
            worker.ack(acks)  # all stale, in the same rows

        def prune() -> None:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT id FROM djqueue_finishedjob WHERE finished_at < now() ORDER BY id LIMIT 50 FOR UPDATE SKIP LOCKED"
                )

        steps: list[Callable[[], object]] = []
        for me in owners:
            steps.append(partial(execute_jobs, open_worker(), me))
            steps.append(partial(open_worker().rescue, owners, limit=300))
            steps.append(partial(open_worker().stage, 300))
            steps.append(lambda: engine.retry(random.sample(ids, 200)))
        with ThreadPoolExecutor(len(steps) + 2) as pool:
            for step in [*steps, prune]:
                pool.submit(loop(step))
            stop.wait(5)  # how long to try
            stop.set()

        assert errors == []
        with connection.cursor() as cursor:
            cursor.execute("SELECT (SELECT count(*) FROM djqueue_job) + (SELECT count(*) FROM djqueue_finishedjob)")
            assert cursor.fetchone()[0] == count


def test_a_transaction_with_an_old_clock_does_not_jump_the_queue(engine, worker, me, session):
    session.execute("SELECT now()")  # the transaction's clock stops here
    [first] = engine.insert([NewJob("tests.task")])
    columns = {name: [value] for name, value in NewJob("tests.task")._asdict().items()}
    [second] = session.execute(sql("insert"), {**columns, "now": None, "relaxed": False}).fetchall()
    session.commit()

    assert [job.id for job in worker.fetch("default", 2, me)] == [first.id, second[0]]
    assert timedelta(0) <= second[2] - first.inserted_at
