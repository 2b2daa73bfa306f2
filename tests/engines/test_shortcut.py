"""The shortcut of fetch past dead entries: it is taken when it pays, and no job is passed over or starved by it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from djqueue.engines.postgres import fetch_cursor as module
from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.fetch_cursor import Place
from djqueue.engines.postgres.statements import sql
from djqueue.jobs.records import Ack, NewJob
from djqueue.jobs.states import JobState
from tests.engines.test_query_plans import plan, scans

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LONG = 20.0


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scan from the start counts as slow and far, and no other one is due for a long time."""
    monkeypatch.setattr(module, "SLOW_SECONDS", -1)
    monkeypatch.setattr(module, "JOB_SECONDS", 0)
    monkeypatch.setattr(module, "FAR_BUFFERS", -1)
    monkeypatch.setattr(module, "SCAN_SECONDS", 3600)


@pytest.fixture
def snapshot(engine: PostgresEngine) -> Iterator[psycopg.Connection]:
    """Somebody's long transaction: nothing that dies from now on can be cleaned up."""
    with connect(engine.alias, "report") as reader:
        reader.autocommit = False
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM djqueue_job")
        yield reader
        reader.rollback()


def insert(engine, count=1, at=NOW, **fields) -> list[int]:
    return [job.id for job in engine.insert([NewJob("tests.task", **fields) for _ in range(count)], now=at)]


def ids(jobs) -> list[int]:
    return [job.id for job in jobs]


def finish(worker, jobs) -> None:
    worker.ack([Ack(job.id, job.claim, JobState.COMPLETED) for job in jobs])


def skipping(worker) -> list[str]:
    return sorted(worker._skipping)


class TestWhenItIsTaken:
    def test_a_queue_without_dead_entries_never_takes_it(self, engine, worker, me):
        insert(engine, 300)
        for _ in range(3):
            finish(worker, worker.fetch("default", 100, me))

        assert not skipping(worker)

    def test_it_is_taken_beside_a_snapshot_and_left_when_the_snapshot_is_gone(
        self, engine, worker, me, snapshot, monkeypatch
    ):
        monkeypatch.setattr(module, "SLOW_SECONDS", 0)
        monkeypatch.setattr(module, "JOB_SECONDS", 0)
        monkeypatch.setattr(module, "SCAN_SECONDS", 0.01)
        insert(engine, 8000)
        while not skipping(worker):
            jobs = worker.fetch("default", 500, me)
            assert jobs, "it was never taken"
            finish(worker, jobs)
        assert ids(worker.fetch("default", 10, me)) == [jobs[-1].id + n for n in range(1, 11)]

        snapshot.rollback()
        with connection.cursor() as cursor:
            cursor.execute("VACUUM djqueue_job")
        while skipping(worker):
            time.sleep(0.1)  # until the next scan from the start is due
            assert worker.fetch("default", 1, me)

    def test_a_shortcut_reads_few_pages_where_a_scan_reads_many(self, engine, worker, me, snapshot, eager):
        insert(engine, 6000)
        for _ in range(10):
            finish(worker, worker.fetch("default", 500, me))

        ranges = worker._places["default"].ranges()
        pages = []
        for name, params in (("fetch", {}), ("fetch_after", ranges)):
            with connection.cursor() as cursor:
                cursor.execute(
                    "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql(name),
                    {"queue": "default", "limit": 1, "worker": me, "now": None, **params},
                )
                answer = cursor.fetchone()[0]
            [tree] = json.loads(answer) if isinstance(answer, str) else answer
            pages.append(tree["Plan"]["Shared Hit Blocks"] + tree["Plan"]["Shared Read Blocks"])
        assert pages[0] > 200
        assert pages[1] < 50


@pytest.mark.usefixtures("eager")
class TestNothingIsPassedOver:
    @pytest.fixture
    def ahead(self, engine, worker, me):
        """The worker has claimed the first jobs, and more wait: from now on it takes the shortcut."""
        insert(engine, 30, at=NOW + 10 * SECOND)
        first = worker.fetch("default", 5, me)
        assert skipping(worker) == ["default"]
        return first

    @pytest.fixture
    def told(self, worker, me, ahead):
        """The listener through which the fetcher is told of jobs that are put back: the next shortcut marks their name."""
        with worker.open_listener() as listener:
            assert len(worker.fetch("default", 1, me)) == 1
            yield listener

    def test_it_goes_on_where_it_was(self, worker, me, ahead):
        assert ids(worker.fetch("default", 5, me)) == [ahead[-1].id + n for n in range(1, 6)]

    def test_a_job_that_commits_late_comes_with_the_first_scan(self, engine, worker, me, ahead):
        [late] = insert(engine, at=NOW)

        assert late not in ids(worker.fetch("default", 5, me))
        worker._places["default"].scan_at = 0.0  # a second has passed

        assert ids(worker.fetch("default", 5, me))[0] == late

    def test_a_late_job_of_a_queue_that_is_empty_otherwise_is_found_at_once(self, engine, worker, me, ahead):
        while worker.fetch("default", 500, me):
            pass
        [late] = insert(engine, at=NOW)

        assert ids(worker.fetch("default", 5, me)) == [late]

    def test_a_short_answer_makes_the_next_fetch_begin_at_the_start(self, engine, worker, me, ahead):
        [late] = insert(engine, at=NOW)

        assert len(worker.fetch("default", 500, me)) == 25

        assert ids(worker.fetch("default", 500, me)) == [late]

    def test_many_late_jobs_are_all_fetched_before_it_goes_on(self, engine, worker, me, ahead):
        late = insert(engine, 12, at=NOW)

        worker._places["default"].scan_at = 0.0  # a second has passed
        found = ids(worker.fetch("default", 5, me))
        while len(found) < 12:
            found += ids(worker.fetch("default", 5, me))

        assert found[:12] == late

    def test_a_level_above_all_known_ones_comes_first(self, engine, worker, me, ahead):
        [high] = insert(engine, priority=50, at=NOW + 99 * SECOND)

        assert ids(worker.fetch("default", 2, me)) == [high, ahead[-1].id + 1]

    def test_new_levels_between_and_below_come_in_their_turn(self, engine, worker, me, ahead):
        [top] = insert(engine, priority=50)
        assert ids(worker.fetch("default", 1, me)) == [top]
        [low] = insert(engine, priority=-7)
        [middle] = insert(engine, priority=49)
        [one] = insert(engine, priority=1)

        found = ids(worker.fetch("default", 28, me))

        assert found[:2] == [middle, one]
        assert found[-1] == low
        assert len(found) == 28

    def test_a_known_level_that_fills_again_comes_first(self, engine, worker, me, ahead):
        insert(engine, 2, priority=50, at=NOW + 20 * SECOND)
        worker.fetch("default", 3, me)
        again = insert(engine, 2, priority=50, at=NOW + 30 * SECOND)

        assert ids(worker.fetch("default", 3, me))[:2] == again

    def test_a_job_handed_back_is_fetched_first_by_the_worker_that_was_woken(self, worker, me, ahead, told):
        worker.ack([Ack(ahead[0].id, ahead[0].claim, JobState.AVAILABLE, is_spent=False)])
        assert told.wait(LONG) == {"default"}

        assert ids(worker.fetch("default", 1, me)) == [ahead[0].id]

    def test_rescued_jobs_wake_it_too(self, worker, me, register, ahead, told):
        other = register()
        worker.rescue([me])
        assert told.wait(LONG) == {"default"}

        assert set(ids(ahead)) <= set(ids(worker.fetch("default", 6, other)))

    def test_what_it_reclaims_it_fetches_first(self, worker, me, ahead):
        assert worker.reclaim(me, {}).count == 5

        assert ids(worker.fetch("default", 5, me)) == ids(ahead)

    def test_a_short_answer_counts_as_partial_until_a_scan_has_found_no_more(self, worker, me, ahead):
        assert (len(worker.fetch("default", 500, me)), worker.is_partial) == (25, True)

        assert (worker.fetch("default", 500, me), worker.is_partial) == ([], False)

    def test_a_hint_counts_the_queue_as_ready_without_a_look(self, worker, me, ahead):
        while worker.fetch("default", 500, me):
            pass

        assert worker.ready(["default", "mail"], is_hint=True) == {"default"}
        assert worker.ready(["default", "mail"]) == set()

    def test_a_retry_without_delay_waits_behind_the_others_and_is_reached(self, engine, worker, me, ahead):
        worker.ack([Ack(ahead[0].id, ahead[0].claim, JobState.RETRYABLE)], now=NOW + 60 * SECOND)

        assert ids(worker.fetch("default", 500, me))[-1] == ahead[0].id

    def test_the_jobs_of_another_queue_are_none_of_its_business(self, engine, worker, me, ahead):
        [other] = insert(engine, queue="mail", at=NOW)

        assert ids(worker.fetch("mail", 5, me)) == [other]

    def test_it_claims_no_more_than_asked_for_and_locks_nothing_else(self, engine, worker, me, open_worker, ahead):
        insert(engine, 5, priority=9)
        with connect(engine.alias, "test") as session:
            session.autocommit = False
            params = {"queue": "default", "limit": 3, "worker": me, "now": None}
            rows = session.execute(sql("fetch_after"), {**params, **worker._places["default"].ranges()}).fetchall()
            rest = open_worker().fetch("default", 500, me)

        assert len(rows) == 3
        assert len(rest) == 25 + 5 - 3

    def test_nothing_for_who_is_not_registered(self, worker, ahead):
        assert worker.fetch("default", 5, uuid4()) == []

    def test_nothing_of_a_paused_queue(self, worker, me, ahead):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO djqueue_queue (name, paused_at) VALUES ('default', now())")

        assert worker.fetch("default", 5, me) == []

    def test_a_locked_job_is_fetched_when_it_is_free(self, engine, worker, me, ahead):
        with connect(engine.alias, "test") as session, session.transaction():
            session.execute("SELECT 1 FROM djqueue_job WHERE id = %s FOR UPDATE", [ahead[-1].id + 1])
            assert ahead[-1].id + 1 not in ids(worker.fetch("default", 5, me))
        while jobs := worker.fetch("default", 500, me):
            found = ids(jobs)

        assert found == [ahead[-1].id + 1]

    @pytest.mark.parametrize("count", [0, 1, 40])
    def test_its_plan_follows_the_fetch_index(self, engine, worker, me, ahead, count):
        insert(engine, 3000)
        place = worker._places["default"]
        place._keys.update(dict.fromkeys(range(1, count + 1), (NOW, 1)))

        nodes = plan("fetch_after", queue="default", limit=500, worker=me, now=None, **place.ranges())

        locked = [node for node in nodes if node["CTE"] == "locked"]
        assert scans(locked) == [("Index Scan", "djqueue_job_fetch")] * 2
        assert [node for node in locked if "Sort" in str(node["Node Type"])] == []


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_in_whatever_order_each_job_runs_once(
    engine, open_worker, register, snapshot, monkeypatch, seed
):
    """Two workers take the shortcut while jobs commit late, at all priorities, fail, and are handed back."""
    monkeypatch.setattr(module, "SLOW_SECONDS", -1)
    monkeypatch.setattr(module, "FAR_BUFFERS", -1)
    monkeypatch.setattr(module, "SCAN_SECONDS", 0.05)
    chance = random.Random(seed)
    count = 1200

    def enqueue() -> None:
        try:
            left = count
            while left:
                size = min(left, chance.randint(1, 20))
                late = chance.random() * 0.5 * SECOND
                engine.insert(
                    [NewJob("tests.task", priority=chance.choice([-5, 0, 0, 0, 3, 50])) for _ in range(size)],
                    now=datetime.now(UTC) - late,
                )
                left -= size
        finally:
            connection.close()

    def work(worker, me, seed) -> list[int]:
        chance = random.Random(seed)
        done: list[int] = []
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < 2:
            jobs = worker.fetch("default", chance.randint(1, 30), me)
            acks = []
            for job in jobs:
                what = chance.random()
                if what < 0.1:
                    acks.append(Ack(job.id, job.claim, JobState.AVAILABLE, is_spent=False))
                elif what < 0.2 and job.attempt < 5:
                    acks.append(Ack(job.id, job.claim, JobState.RETRYABLE))
                else:
                    acks.append(Ack(job.id, job.claim, JobState.COMPLETED))
            accepted = worker.ack(acks).accepted
            done += [ack.id for ack in acks if ack.state is JobState.COMPLETED and ack.id in accepted]
            if jobs:
                idle_since = time.monotonic()
        return done

    workers = [(open_worker(), register(), n) for n in range(2)]
    with ThreadPoolExecutor(3) as pool:
        enqueuer = pool.submit(enqueue)
        futures = [pool.submit(work, *one) for one in workers]
        done = [id for future in futures for id in future.result(60)]
        enqueuer.result()

    assert len(done) == len(set(done)) == count
    assert all(skipping(worker) for worker, _, _ in workers)


def test_what_fetch_asks_of_a_job_the_shortcut_asks_too():
    def parts(name: str) -> list[str]:
        return [line.strip() for line in sql(name).splitlines()]

    fetch, shortcut = parts("fetch"), parts("fetch_after")
    start = fetch.index("WHERE")
    conditions = fetch[start + 1 : fetch.index("ORDER BY priority DESC, ready_at, id")]
    assert len(conditions) >= 3
    assert [condition for condition in conditions if shortcut.count(condition) != 2] == []
    claim = "UPDATE djqueue_job AS job"
    assert [line for line in fetch[fetch.index(claim) :] if "FROM locked" not in line] == [
        line for line in shortcut[shortcut.index(claim) :] if "FROM locked" not in line
    ]


def test_the_ranges_cover_every_priority_once_and_in_run_order():
    place = Place()
    place._keys = {10: (NOW, 1), 9: (NOW, 2), -3: (NOW, 3)}

    ranges = place.ranges()

    rows = list(zip(ranges["levels"], ranges["above"], ranges["below"], ranges["after_id"], strict=True))
    assert rows == [
        (None, 10, 32767, 0),
        (10, None, None, 1),
        (9, None, None, 2),
        (None, -3, 9, 0),
        (-3, None, None, 3),
        (None, -32768, -3, 0),
    ]


def test_slow_scans_come_less_often(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    place = Place()
    place.note_scan([], 10, 0.01)
    assert place.scan_at == 101.0

    place.note_scan([], 10, 0.5)

    assert place.scan_at == 110.0
