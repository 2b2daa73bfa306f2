"""The plans of the statements of workflows: they reach jobs, dependencies and flows by index, whatever ANALYZE last saw."""

from __future__ import annotations

import pytest

from djqueue.engines.postgres.columns import array, numbers
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.flows.acking import flow_statement
from djqueue.jobs.records import Ack
from djqueue.jobs.states import JobState
from tests.engines.test_query_plans import execute, plan

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

TABLES = ("djqueue_job", "djqueue_finishedjob", "djqueue_flow", "djqueue_dependency")


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    execute(f"TRUNCATE {', '.join(TABLES)}, djqueue_flowcount, djqueue_flowevent")
    return postgres


def fill(first: int, last: int) -> None:
    """Store jobs, of which every tenth waits for the nine before it, and as many finished jobs and flows."""
    params = {"first": first, "last": last}
    execute(
        """
        INSERT INTO djqueue_job (id, state, task, flow_id, is_awaited, pending, ready_at)
        SELECT n, CASE WHEN n %% 10 = 9 THEN 'suspended' ELSE 'executing' END, 'shop.tasks.noop', 1000000 + n / 10,
            CASE WHEN n %% 10 < 9 THEN true END, CASE WHEN n %% 10 = 9 THEN 9 END, CASE WHEN n %% 10 < 9 THEN now() END
        FROM generate_series(%(first)s, %(last)s - 1) AS n
        """,
        params,
    )
    execute(
        """
        INSERT INTO djqueue_dependency (upstream_id, downstream_id, rule)
        SELECT n, n / 10 * 10 + 9, 's' FROM generate_series(%(first)s, %(last)s - 1) AS n WHERE n %% 10 < 9
        """,
        params,
    )
    execute(
        """
        INSERT INTO djqueue_flow (id, total, first_id, last_id)
        SELECT 1000000 + n, 10, n * 10, n * 10 + 9 FROM generate_series(%(first)s, %(last)s - 1) AS n
        """,
        params,
    )
    execute(
        """
        INSERT INTO djqueue_finishedjob (id, state, task, finished_at)
        SELECT 5000000 + n, 'completed', 'shop.tasks.noop', now() FROM generate_series(%(first)s, %(last)s - 1) AS n
        """,
        params,
    )


def analyze() -> None:
    for table in TABLES:
        execute(f"VACUUM ANALYZE {table}")


def flow_params(count: int) -> dict[str, dict[str, object]]:
    ids = [n for n in range(10, 10 + 2 * count) if n % 10 < 9][:count]
    acks = [Ack(id, 1, JobState.COMPLETED, 1.0, 2.0, "1") for id in ids]
    none = array(["NULL"] * len(ids))
    ends = {"id": numbers(ids), "only_id": none, "after": none, "until": none, "limit": 5000, "now": None}
    flows = [1_000_000 + n for n in range(count)]
    return {
        "ack_flow": flow_statement(acks, None, as_events=True)[1],
        "flow_release": {**ends, "state": array(["completed"] * len(ids))},
        "flow_stop": {**ends, "state": array(["discarded"] * len(ids))},
        "flow_postpone": {**ends, "state": array(["completed"] * len(ids))},
        "flow_fold": {"ids": numbers(list(range(1, count + 1))), "limit": count, "now": None},
        "flow_finish": {"ids": numbers(flows), "now": None},
        "flow_whole": {"ids": numbers(flows), "failed": "{}", "now": None},
        "flow_link": {"upstream": 10, "downstream": numbers(ids), "rule": array(["s"] * len(ids))},
        "flow_link_states": {"upstream": 10, "downstream": numbers(ids)},
        "flow_rest": {"id": 1_000_001, "limit": 1000},
    }


def scanned(count: int) -> dict[str, set[str]]:
    """Return the tables that each statement reads from one end to the other."""
    return {
        name: tables
        for name, params in flow_params(count).items()
        if (
            tables := {
                str(node["Relation Name"])
                for node in plan(name, **params)
                if node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES
            }
        )
    }


@pytest.mark.parametrize("count", [1, 20, 200])
@pytest.mark.parametrize("seen", [0, 10, 10_000], ids=["empty", "ten jobs", "all of them"])
def test_no_statement_reads_a_whole_table(engine, count, seen):
    fill(0, seen)
    analyze()
    fill(seen, 10_000)

    # Two hundred of ten thousand small rows: to read the few pages of that table from end to end costs as much as to look each up.
    allowed = {"djqueue_flow"} if count == 200 else set()
    assert {name: tables for name, tables in scanned(count).items() if tables - allowed} == {}
