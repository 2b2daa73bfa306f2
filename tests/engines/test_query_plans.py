"""The plans of PostgreSQL for the statements of the hot path, at sizes and with statistics that mislead it.

A queue that turns into a sequential scan at the wrong ANALYZE brings a site down at its busiest hour.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest
from django.db import connection

from djqueue.engines.postgres.columns import ack_columns
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.worker import PostgresWorkerEngine
from djqueue.records import Ack, NewJob, WorkerInfo
from djqueue.states import JobState

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

Node = dict[str, object]


def execute(statement: str, params: object = None) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def fill(count: int, state: str = "available", queue: str = "default", kwargs: str = "{}") -> None:
    """Store jobs in one statement: available, executing, or scheduled for a long time ago."""
    execute(
        """
        INSERT INTO djqueue_job (state, queue, task, args, kwargs, ready_at, scheduled_at, inserted_at)
        SELECT %(state)s, %(queue)s, 'shop.tasks.noop', '[1]', %(kwargs)s::jsonb,
            CASE WHEN %(state)s <> 'scheduled' THEN clock_timestamp() END,
            CASE WHEN %(state)s = 'scheduled' THEN now() - interval '1 hour' + n * interval '1 microsecond' END,
            clock_timestamp()
        FROM generate_series(1, %(count)s) AS n
        """,
        {"count": count, "state": state, "queue": queue, "kwargs": kwargs},
    )


def plan(name: str, **params: object) -> list[Node]:
    """Return the nodes of the plan, each with the CTE it belongs to."""
    [(answer,)] = execute("EXPLAIN (FORMAT JSON) " + sql(name), params)
    [tree] = json.loads(answer) if isinstance(answer, str) else answer

    def nodes(node: dict, cte: str) -> Iterator[Node]:
        cte = str(node.get("Subplan Name", cte))
        yield {**node, "CTE": cte.removeprefix("CTE ")}
        for child in node.get("Plans", []):
            yield from nodes(child, cte)

    return list(nodes(tree["Plan"], ""))


def scans(nodes: list[Node], table: str = "djqueue_job") -> list[tuple[object, object]]:
    return [
        (node["Node Type"], node.get("Index Name"))
        for node in nodes
        if node.get("Relation Name") == table and node["Node Type"] != "ModifyTable"
    ]


def assert_fetch_follows_its_index(worker: UUID, queue: str = "default", limit: int = 500) -> None:
    nodes = plan("fetch", queue=queue, limit=limit, worker=worker, now=None)
    locked = [node for node in nodes if node["CTE"] == "locked"]
    assert [node for node in locked if "Sort" in str(node["Node Type"])] == []
    assert scans(locked) == [("Index Scan", "djqueue_job_fetch")]
    # On few pages a sequential scan is as good; the planner knows how many there are, whatever ANALYZE saw.
    assert scans([node for node in nodes if node["CTE"] == "claimed"]) in (
        [("Tid Scan", None)],
        [("Seq Scan", None)],
    )


def ack_params(count: int) -> dict[str, object]:
    acks = [Ack(id, 1, JobState.COMPLETED) for id in range(1, count + 1)]
    return {**ack_columns(acks), "result": [], "now": None}


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    # Statistics survive TRUNCATE; each test starts as a new installation does.
    execute("TRUNCATE djqueue_job, djqueue_finishedjob")
    execute("ANALYZE djqueue_job")
    return postgres


class TestFetch:
    def test_an_empty_table(self, engine, me):
        execute("TRUNCATE djqueue_job")  # as a migration leaves it: never analysed

        assert_fetch_follows_its_index(me)

    @pytest.mark.parametrize("limit", [1, 10, 500, 5000])
    def test_analysed_when_empty(self, engine, me, limit):
        fill(10_000)

        assert_fetch_follows_its_index(me, limit=limit)

    @pytest.mark.parametrize("limit", [1, 500])
    def test_never_analysed(self, engine, me, limit):
        execute("DELETE FROM pg_statistic WHERE starelid = 'djqueue_job'::regclass")
        fill(10_000)

        assert_fetch_follows_its_index(me, limit=limit)

    @pytest.mark.parametrize("limit", [1, 10, 500, 5000])
    def test_analysed_when_all_were_executing(self, engine, me, limit):
        fill(10_000, "executing")
        execute("ANALYZE djqueue_job")
        execute("UPDATE djqueue_job SET state = 'available'")

        assert_fetch_follows_its_index(me, limit=limit)

    @pytest.mark.parametrize("limit", [1, 500])
    def test_analysed_when_all_were_waiting(self, engine, me, limit):
        fill(10_000, "scheduled")
        execute("ANALYZE djqueue_job")
        fill(10_000)

        assert_fetch_follows_its_index(me, limit=limit)

    @pytest.mark.parametrize("limit", [1, 500])
    def test_analysed_when_the_queue_was_unseen(self, engine, me, limit):
        fill(10_000, queue="other")
        execute("ANALYZE djqueue_job")
        fill(10_000, queue="new")

        assert_fetch_follows_its_index(me, queue="new", limit=limit)
        assert_fetch_follows_its_index(me, queue="other", limit=limit)
        assert_fetch_follows_its_index(me, queue="empty", limit=limit)

    # Below that the table is a page or none, and nothing is cheaper than to read it.
    @pytest.mark.parametrize("count", [30, 300, 3000])
    def test_analysed_at_every_small_size(self, engine, me, count):
        fill(count)
        execute("ANALYZE djqueue_job")

        assert_fetch_follows_its_index(me)

    def test_one_queue_among_hundreds(self, engine, me):
        for n in range(200):
            fill(50, queue=f"tenant-{n}")
        execute("ANALYZE djqueue_job")

        assert_fetch_follows_its_index(me, queue="tenant-150", limit=10)


class TestAMillionJobs:
    def test_every_statement_keeps_its_plan(self, engine, worker, me):
        """One test, for filling the table takes most of its time. The statistics are those of an empty table, then true."""
        fill(1_000_000)
        fill(20_000, "scheduled")
        for is_analysed in (False, True):
            if is_analysed:
                execute("ANALYZE djqueue_job")
            for limit in (1, 10, 500, 5000):
                assert_fetch_follows_its_index(me, limit=limit)
            assert scans(plan("get", id=77)) == [("Index Scan", "djqueue_job_pkey")]
            for count in (1, 500, 1000):
                assert scans(plan("ack", **ack_params(count))) == [("Index Scan", "djqueue_job_pkey")]
            requeue = {**ack_params(500), "delay": "{0}", "note": [None]}
            assert scans(plan("ack_requeue", **requeue)) == [("Index Scan", "djqueue_job_pkey")]
            staged = scans(plan("stage", limit=5000, ids=None, skip=[], since=None, now=None))
            assert sorted(staged, key=str) == [("Index Scan", "djqueue_job_stage")] * 2 + [("Tid Scan", None)]
            params = {
                "workers": [me],
                "ran_id": [1],
                "ran_claim": [1],
                "kept_id": [],
                "kept_claim": [],
                "reason": "",
                "limit": 5000,
                "now": None,
            }
            rescue = plan("rescue", **params)
            # One walk over the table finds what executes; what is found is then reached by its id.
            assert scans([node for node in rescue if node["CTE"] == "lost_ids"]) == [("Seq Scan", None)]
            rest = scans([node for node in rescue if node["CTE"] != "lost_ids"])
            assert rest == [("Index Scan", "djqueue_job_pkey")] * 3

            # Follow-ups are few, and found without a look at anything else.
            follow_ups = plan("follow_ups", limit=5000)
            assert "djqueue_job_follow_up" in {node.get("Index Name") for node in follow_ups}
            for nodes in (follow_ups, plan("release", keys=["a", "b"], milliseconds=None, now=None)):
                assert "Seq Scan" not in {kind for kind, _ in scans(nodes)}

            jobs = worker.fetch("default", 500, me)
            assert len(worker.ack([Ack(job.id, job.claim, JobState.COMPLETED) for job in jobs])) == 500
            worker.fetch("default", 5000, me)
            assert worker.rescue([me], ran={}).requeued == 5000
            assert worker.stage(5000).count == 5000


class TestClaimsAreHot:
    @pytest.mark.parametrize("size", [0, 100, 600, 1800])
    @pytest.mark.parametrize("batch", [1, 10, 500])
    def test_a_claim_touches_no_index(self, engine, worker, me, size, batch):
        count = 2000 if batch > 1 else 100
        fill(count, kwargs=json.dumps({"x": "y" * size}))

        assert self._hot_share(worker, lambda: worker.fetch("default", batch, me), count // batch) == 1.0

    def test_jobs_stored_by_the_engine_are_claimed_hot_too(self, engine, worker, me):
        for _ in range(20):
            engine.insert([NewJob("tests.task", args='["' + "x" * 300 + '"]')] * 100)

        assert self._hot_share(worker, lambda: worker.fetch("default", 500, me), 4) == 1.0

    def test_a_drained_and_filled_table_stays_hot(self, engine, worker, me):
        """Freed space is used again, and claims still fit beside their rows."""
        for _ in range(3):
            fill(2000)
            while jobs := worker.fetch("default", 500, me):
                worker.ack([Ack(job.id, job.claim, JobState.COMPLETED) for job in jobs])
            execute("VACUUM djqueue_job")
        fill(2000)

        assert self._hot_share(worker, lambda: worker.fetch("default", 500, me), 4) >= 0.95

    def _hot_share(self, worker: PostgresWorkerEngine, claim: Callable[[], list[object]], times: int) -> float:
        before = self._updates(worker)
        claimed = sum(len(claim()) for _ in range(times))
        after = self._updates(worker)
        assert after[0] - before[0] == claimed > 0
        return (after[1] - before[1]) / claimed

    def _updates(self, worker: PostgresWorkerEngine) -> tuple[int, int]:
        for session in (connection.connection, worker._connection):
            assert session is not None
            session.execute("SELECT pg_stat_force_next_flush()")
        [row] = execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'djqueue_job'")
        return row  # type: ignore[return-value]


def test_a_worker_row_is_what_lets_a_worker_fetch(engine, worker):
    """The check costs one look-up per statement, not one per row."""
    one = uuid4()
    worker.register([WorkerInfo(id=one, name="n", hostname="h", pid=1, queues={}, concurrency=1)])
    fill(100)
    execute("ANALYZE djqueue_job")

    nodes = plan("fetch", queue="default", limit=10, worker=one, now=None)

    [check] = [node for node in nodes if node.get("One-Time Filter")]
    assert check["CTE"] == "locked"
