"""Retry of jobs of workflows on PostgreSQL: the counts agree with the jobs, and what was stopped waits again."""

from __future__ import annotations

import pytest
from django.db import transaction

from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.flows import FlowJob, FlowKind, NewFlow, OnFailure
from djqueue.jobs.records import NewJob
from djqueue.jobs.states import JobState
from tests.engines.flow_audit import audit
from tests.engines.flow_steps import ANY_END, FAILURE, SUCCESS, after, end, of_flow, run, states, stored, workflow

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


def fail(worker, me, limit=10) -> None:
    end(worker, worker.fetch("default", limit, me), JobState.DISCARDED)


def test_a_chain_is_retried_and_completes(engine, worker, me):
    flow = workflow(engine, [], after(0), after(1))
    fail(worker, me)
    audit()

    [done] = engine.retry([flow.job_ids[0]])

    assert done.outcome == ControlOutcome.RETRIED
    assert states(flow.job_ids) == ["available", "suspended", "suspended"]
    audit()
    for id in flow.job_ids:
        assert run(worker, me) == [id]
        audit()


def test_in_a_transaction_it_is_a_request(engine, worker, me):
    flow = workflow(engine, [], after(0))
    fail(worker, me)

    with transaction.atomic():
        [done] = engine.retry([flow.job_ids[0]])
        assert done.outcome == ControlOutcome.REQUESTED
        assert states(flow.job_ids) == ["discarded", "cancelled"]

    assert states(flow.job_ids) == ["available", "suspended"]
    audit()


def test_what_another_failure_stopped_is_stopped_again(engine, worker, me):
    flow = workflow(engine, [], [], after(0, 1), after(2), after(2, rule=ANY_END))
    fail(worker, me, 2)
    audit()

    engine.retry([flow.job_ids[0]])
    assert states(flow.job_ids) == ["available", "discarded", "cancelled", "cancelled", "available"]
    audit()
    engine.retry([flow.job_ids[1]])
    assert states(flow.job_ids) == ["available", "available", "suspended", "suspended", "available"]
    audit()


def test_a_stopped_job_alone_is_stopped_again(engine, worker, me):
    flow = workflow(engine, [], after(0))
    fail(worker, me)

    engine.retry([flow.job_ids[1]])

    assert states(flow.job_ids) == ["discarded", "cancelled"]
    audit()


@pytest.mark.parametrize("rule", [SUCCESS, ANY_END])
def test_one_that_still_waits_waits_for_the_retried_job_too(engine, worker, me, rule):
    flow = workflow(engine, [], [], [*after(0, rule=rule), *after(1)])
    first, second = worker.fetch("default", 2, me)
    end(worker, [first], JobState.COMPLETED if rule is SUCCESS else JobState.DISCARDED)

    engine.retry([first.id])
    audit()
    end(worker, [second])

    assert states(flow.job_ids) == ["available", "completed", "suspended"]
    audit()
    run(worker, me)
    assert states(flow.job_ids)[2] == "available"
    audit()


def test_a_compensation_does_not_run_because_of_a_retry(engine, worker, me):
    flow = workflow(engine, [], after(0), after(0, rule=FAILURE))
    run(worker, me, 1)
    fail(worker, me)
    assert states(flow.job_ids) == ["completed", "discarded", "cancelled"]

    engine.retry_flow(flow.flow_ids[0])

    assert states(flow.job_ids) == ["completed", "available", "cancelled"]
    audit()


@pytest.mark.parametrize("rule", [SUCCESS, ANY_END, FAILURE])
def test_callbacks(engine, worker, me, rule):
    flow = workflow(engine, [], [], callbacks=[rule])
    fail(worker, me, 1)
    audit()
    run(worker, me, 1)
    audit()

    engine.retry_flow(flow.flow_ids[0])
    audit()
    for _ in range(3):
        run(worker, me)
        audit()

    assert states(flow.job_ids) == ["completed"] * 3


def test_parts_and_their_whole_are_reopened(engine, worker, me):
    flow = engine.insert_flow(
        [NewFlow(), NewFlow(FlowKind.PART, whole=0)],
        [
            FlowJob(NewJob("tests.task"), 1, []),
            FlowJob(NewJob("tests.task"), 1, []),
            FlowJob(NewJob("t"), 0, [of_flow(1)]),
        ],
    )
    fail(worker, me)
    audit()

    engine.retry([flow.job_ids[0]])
    audit()
    assert states(flow.job_ids) == ["available", "discarded", "suspended"]
    run(worker, me)
    audit()
    assert states(flow.job_ids) == ["completed", "discarded", "cancelled"]
    assert engine.retry_flow(flow.flow_ids[0]) == 2
    audit()
    run(worker, me)
    run(worker, me)
    assert states(flow.job_ids) == ["completed"] * 3
    audit()


def test_a_flow_that_cancelled_its_rest_is_retried(engine, worker, me):
    flow = workflow(engine, [], [], after(1), after(2), flow=NewFlow(on_failure=OnFailure.CANCEL))
    fail(worker, me, 1)
    worker.settle()
    audit()

    engine.retry_flow(flow.flow_ids[0])

    assert states(flow.job_ids) == ["available", "available", "suspended", "suspended"]
    audit()


def test_a_job_of_another_flow_that_was_stopped_reopens_it(engine, worker, me):
    first = workflow(engine, [])
    later = workflow(engine, [stored(first.job_ids[0])], after(0))
    fail(worker, me)
    assert states(later.job_ids) == ["cancelled"] * 2

    engine.retry(first.job_ids)

    assert states(later.job_ids) == ["suspended"] * 2
    audit()


def test_a_flow_whose_key_another_holds_stays_as_it_is(engine, worker, me):
    flow = workflow(engine, [], flow=NewFlow(unique_key="k"))
    fail(worker, me)
    workflow(engine, [], flow=NewFlow(unique_key="k"))

    [done] = engine.retry(flow.job_ids)

    assert done.outcome == ControlOutcome.REQUESTED
    assert states(flow.job_ids) == ["discarded"]
    audit()
