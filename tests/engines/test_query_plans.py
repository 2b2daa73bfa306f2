"""The plans of PostgreSQL for the statements of the hot path, at sizes and with statistics that mislead it.

A queue that turns into a sequential scan at the wrong ANALYZE brings a site down at its busiest hour.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection

from djqueue.engines.postgres import listing
from djqueue.engines.postgres.at_most_once import taken_statements
from djqueue.engines.postgres.columns import ack_columns, array, texts
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.unique import job_columns
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, ClaimedJob, NewJob, TakenJob, WorkerInfo
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState
from tests.roles import Roles

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
    """Return the nodes of the plan of a named statement, each with the CTE it belongs to."""
    return plan_of(sql(name), params)


def plan_of(text: str, params: object) -> list[Node]:
    [(answer,)] = execute("EXPLAIN (FORMAT JSON) " + text, params)
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


def job_scans(nodes: list[Node]) -> list[Node]:
    return [node for node in nodes if node.get("Relation Name") == "djqueue_job" and node["Node Type"] != "ModifyTable"]


def way(node: Node) -> str:
    """Name the index by which a scan finds its rows."""
    if node["Node Type"] == "Bitmap Heap Scan":
        [node] = [child for child in node["Plans"] if "Index Name" in child]  # type: ignore[attr-defined]
    return str(node["Index Name"] if "Index Cond" in node else node["Node Type"])


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


FETCH, STAGE, KEY, PRIMARY, TID = (
    "djqueue_job_fetch",
    "djqueue_job_stage",
    "djqueue_job_unique",
    "djqueue_job_pkey",
    "Tid Scan",
)
HOT: dict[str, list[str]] = {
    "fetch": [FETCH, TID],
    "fetch_after": [FETCH, FETCH, TID],
    "take": [FETCH, TID],
    "ready": [FETCH],
    "ack": [PRIMARY],
    "ack_requeue": [PRIMARY],
    "ack_cancelled": [PRIMARY],
    "stage": [STAGE, STAGE, TID],
    "insert": [],
    "insert_one": [],
    "insert_one_unique": [],
    "insert_held": [KEY],
    "insert_follow_up": [],
    "holders": [KEY],
    "hold": [KEY],
    "revise": [KEY, PRIMARY],
    "release": [KEY, KEY, PRIMARY],
    "note_begun": [PRIMARY, TID],
    "cancel_requested": [PRIMARY],
    "record": [PRIMARY],
    "put_back": [KEY],
    "get": [PRIMARY],
}
"""How each hot statement reaches the rows of the live table: nothing else, in no order."""
BATCHES = (1, 10, 100, 1000)


def hot_params(name: str, count: int, worker: UUID) -> dict[str, object]:
    """Return the parameters of a statement as a worker or an enqueue with so many jobs would give them."""
    job = NewJob("shop.tasks.noop", unique_key="k")
    jobs = [job._replace(unique_key=f"k{n}") for n in range(count)]
    keys = [job.unique_key for job in jobs]
    ids = list(range(1, count + 1))
    acks = [Ack(id, 1, JobState.RETRYABLE, 1.0, 2.0, None, '{"a": 1}', 1.0) for id in range(1, count + 1)]
    now = datetime(2026, 11, 30, tzinfo=UTC)
    claimed = ClaimedJob(1, 1, "default", "t", "[]", "{}", 1, 1, 0, now, None, None, None, now, "[]", "{}", now)
    taken = [ack._replace(taken=TakenJob(*claimed)) for ack in acks]
    for ack in taken:
        ack.taken.attempted_by = worker  # type: ignore[union-attr]
    common: dict[str, object] = {"now": None, "relaxed": False, "asks": False, "limit": count, "worker": worker}
    special: dict[str, dict[str, object]] = {
        "fetch_after": {"levels": [None, 0, None], "above": [0, None, -32768], "below": [32767, None, 0]}
        | {"after_at": [now] * 3, "after_id": [0] * 3},
        "stage": {"ids": None, "skip": [], "since": None},
        "insert": job_columns(jobs),
        "insert_held": {**job_columns(jobs), "window": "1 hour"},
        "insert_follow_up": job_columns(jobs),
        "insert_one": job._asdict(),
        "insert_one_unique": job._asdict(),
        "holders": {"keys": keys},
        "hold": {"keys": keys},
        "revise": {**job_columns(jobs), "replace": True, "reschedule": True, "suffix": ""},
        "release": {"keys": keys, "milliseconds": None},
        "note_begun": {"ids": ids, "claims": ids},
        "cancel_requested": {"ids": ids},
        "get": {"id": 77},
        "ready": {"queues": ["default", *(f"tenant-{n}" for n in range(count))]},
    }
    if name.startswith("ack"):
        columns = {"result": texts(ack.result for ack in acks), "delay": array([1.0] * count), "note": "{}"}
        special[name] = {**ack_columns(acks), **columns}
    if name in ("record", "put_back"):
        state = JobState.COMPLETED if name == "record" else JobState.AVAILABLE
        [(statement, special[name])] = taken_statements([ack._replace(state=state) for ack in taken], None)
        assert statement == name
    return {"queue": "default", **common, **special.get(name, {})}


class TestPlansDoNotDependOnStatistics:
    """One test, for filling the table takes most of its time."""

    def test_t55_every_hot_statement_has_the_same_plan_whatever_analyze_saw(self, engine, worker, me):
        # As VACUUM leaves the statistics of a table that has been emptied and cannot be cut, or has one job left on its last page:
        # of however many pages, the planner then expects no more than a row or two.
        for left in (0, 1):
            execute("TRUNCATE djqueue_job")
            fill(1000)
            execute("DELETE FROM djqueue_job WHERE id <= (SELECT max(id) FROM djqueue_job) - %s", [left])
            execute("VACUUM (ANALYZE, TRUNCATE false) djqueue_job")
            for size in (1000, 10_000):
                fill(size)
                self._check(f"{size} jobs, analysed when {left} of 1,000 were left", me)
        execute("TRUNCATE djqueue_job")
        execute("VACUUM ANALYZE djqueue_job")
        filled = 0
        for size in (1000, 10_000, 50_000, 1_000_000):
            fill(size - filled)
            fill((size - filled) // 50, "scheduled")
            self._check(f"{size} jobs, analysed when there were {filled}", me)
            filled = size
            execute("ANALYZE djqueue_job")
            self._check(f"{size} jobs, analysed", me)

        # Follow-ups are few, and found without a look at anything else.
        follow_ups = plan("follow_ups", limit=5000)
        assert "djqueue_job_follow_up" in {node.get("Index Name") for node in follow_ups}
        for nodes in (follow_ups, plan("release", keys=["a", "b"], milliseconds=None, now=None)):
            assert "Seq Scan" not in {kind for kind, _ in scans(nodes)}

        jobs = worker.fetch("default", 500, me)
        assert len(worker.ack([Ack(job.id, job.claim, JobState.COMPLETED) for job in jobs]).accepted) == 500
        worker.fetch("default", 5000, me)
        assert worker.rescue([me], ran={}).requeued == 5000
        assert worker.stage(5000).count == 5000

    def _check(self, situation: str, worker: UUID) -> None:
        others = {}
        for name, expected in HOT.items():
            for count in BATCHES:
                nodes = plan(name, **hot_params(name, count, worker))
                found = sorted(map(way, job_scans(nodes)))
                # A thousand outcomes and a thousand rows are not compared each with each. (Nobody revises a thousand jobs at once.)
                loops = [node for node in nodes if node.get("Join Filter") and node["Node Type"] == "Nested Loop"]
                if found != sorted(expected) or (loops and count == 1000 and name.startswith("ack")):
                    others[name, count] = found
        assert others == {}, situation
        for count in BATCHES:
            ids = list(range(1, count + 1))
            known = {
                "workers": [worker],
                "ran_id": ids,
                "ran_claim": ids,
                "as_noted": False,
                "kept_id": ids,
                "kept_claim": ids,
            }
            nodes = plan("rescue", **known, reason="", limit=5000, now=None)
            # One walk over the table finds what executes; what is found is then reached at its place.
            rest = [node for node in nodes if node["CTE"] != "held"]
            assert len(job_scans(nodes)) == 4
            assert list(map(way, job_scans(rest))) == [TID] * 3, f"rescue of {count}; {situation}"


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

    def _hot_share(self, worker: Roles, claim: Callable[[], list[object]], times: int) -> float:
        before = self._updates(worker)
        claimed = sum(len(claim()) for _ in range(times))
        after = self._updates(worker)
        assert after[0] - before[0] == claimed > 0
        return (after[1] - before[1]) / claimed

    def _updates(self, worker: Roles) -> tuple[int, int]:
        for session in (connection.connection, worker.fetcher._connection):
            if session is not None:  # the worker connects at its first fetch
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


class TestLists:
    """Pages of lists, which people wait for: along an index from the position on, whatever ANALYZE saw last."""

    @pytest.fixture
    def plans_of(self, engine, monkeypatch):
        """Return the plans of the statements that a call runs, with the same constants."""

        def plans_of(call: Callable[[], object]) -> list[list[Node]]:
            found: list[list[Node]] = []
            run = listing._List.run

            def explained(self: listing._List, text: str, limit: timedelta) -> object:
                found.append(plan_of(text, self.params))
                return run(self, text, limit)

            with monkeypatch.context() as patch:
                patch.setattr(listing._List, "run", explained)
                call()
            return found

        return plans_of

    @pytest.fixture(params=["analysed when empty", "never analysed", "analysed"])
    def filled(self, engine, request):
        """A queue with many jobs and one with a few, as the planner sees them at three times of their life."""
        tables = ("djqueue_job", "djqueue_finishedjob")
        if request.param == "never analysed":
            for table in tables:
                execute(f"DELETE FROM pg_statistic WHERE starelid = '{table}'::regclass")
        fill(50, queue="rare")
        fill(10_000)
        fill(3000, "scheduled")
        fill(50, "executing")
        execute(
            "INSERT INTO djqueue_finishedjob (id, state, queue, task, args, kwargs, inserted_at, finished_at)"
            " SELECT id + 1000000, CASE id % 2 WHEN 0 THEN 'completed' ELSE 'discarded' END, queue, task, args, kwargs,"
            " inserted_at, inserted_at + (id % 100) * interval '1 s' FROM djqueue_job"
        )
        if request.param == "analysed":
            for table in tables:
                execute(f"ANALYZE {table}")
        return engine

    # With a filter only statistics tell how many entries of the index a page costs. A table that was never analysed may be read
    # as a whole; autovacuum analyses it after a thousand changes.
    @pytest.mark.parametrize(
        ("filled", "jobs"),
        [
            ("analysed when empty", JobFilter(states=LIVE_STATES)),
            ("never analysed", JobFilter(states=LIVE_STATES)),
            ("analysed", JobFilter(states=LIVE_STATES)),
            ("analysed", JobFilter(states=LIVE_STATES, queue="default")),
        ],
        indirect=["filled"],
    )
    def test_a_page_of_live_jobs(self, filled, plans_of, jobs):
        position = filled.page(jobs, limit=100).older

        for after in ("", position):
            page, beginnings = plans_of(lambda after=after: filled.page(jobs, after=after, limit=100))
            assert scans(page) == [("Index Scan", "djqueue_job_pkey")]
            assert [node for node in page if "Sort" in str(node["Node Type"])] == []
            assert {way(node) for node in job_scans(beginnings)} == {"djqueue_job_pkey"}

    @pytest.mark.parametrize("filled", ["never analysed"], indirect=True)
    @pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.RETRYABLE, JobState.AVAILABLE])
    @pytest.mark.parametrize("queue", ["rare", "none"])
    def test_a_page_of_few_jobs_in_one_state(self, filled, plans_of, state, queue):
        page, *_ = plans_of(lambda: filled.page(JobFilter(states=(state,), queue=queue), limit=100))

        assert "Seq Scan" not in {node["Node Type"] for node in job_scans(page)}

    @pytest.mark.parametrize("filled", ["never analysed"], indirect=True)
    def test_executing_jobs_are_not_looked_for_along_the_list(self, filled, plans_of):
        page, *_ = plans_of(lambda: filled.page(JobFilter(states=(JobState.EXECUTING,)), limit=100))

        assert "djqueue_job_pkey" not in {way(node) for node in job_scans(page)}

    @pytest.mark.parametrize(
        ("filled", "jobs"),
        [
            ("never analysed", JobFilter(states=FINAL_STATES)),
        ],
        indirect=["filled"],
    )
    def test_a_page_of_finished_jobs(self, filled, plans_of, jobs):
        position = filled.page(jobs, limit=100).older

        for after in ("", position):
            page, beginnings = plans_of(lambda after=after: filled.page(jobs, after=after, limit=100))
            assert scans(page, "djqueue_finishedjob") == [("Index Scan", "djqueue_finishedjob_finished")]
            # Only jobs that finished at the same time are sorted.
            assert {node["Node Type"] for node in page if "Sort" in str(node["Node Type"])} <= {"Incremental Sort"}
            [(_, index)] = scans([node for node in beginnings if "Index Name" in node], "djqueue_finishedjob") or [
                ("", "djqueue_finishedjob_pkey")
            ]
            assert index == "djqueue_finishedjob_pkey"
            assert "Seq Scan" not in {node["Node Type"] for node in beginnings}
