"""Workflows on PostgreSQL: how they are stored, and what the ends of their jobs do to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import transaction

from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.flows.insert import SMALL
from djqueue.jobs.flows import DependencyRule, FlowJob, FlowKind, InsertedFlow, NewFlow, Upstream, UpstreamKind
from djqueue.jobs.records import Ack, ClaimedJob, NewJob
from djqueue.jobs.states import JobState
from djqueue.models import Dependency, FinishedJob, Flow, Job
from tests.engines.flow_audit import audit
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

FAILURE, ANY_END = DependencyRule.FAILURE, DependencyRule.ANY_END


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


def after(*places: int, rule: DependencyRule = DependencyRule.SUCCESS) -> list[Upstream]:
    return [Upstream(UpstreamKind.JOB, place, rule) for place in places]


def of_flow(place: int = 0, rule: DependencyRule = DependencyRule.SUCCESS) -> Upstream:
    return Upstream(UpstreamKind.FLOW, place, rule)


def stored(id: int, rule: DependencyRule = DependencyRule.SUCCESS) -> Upstream:
    return Upstream(UpstreamKind.ID, id, rule)


def workflow(engine: PostgresEngine, *deps: Sequence[Upstream], flow: NewFlow | None = None) -> InsertedFlow:
    """Store one workflow with a job for each argument, which says what the job waits for."""
    return engine.insert_flow([flow or NewFlow()], [FlowJob(NewJob("tests.task"), 0, up) for up in deps])


def states(ids: Sequence[int]) -> list[str]:
    found = dict(Job.objects.filter(id__in=ids).values_list("id", "state"))
    found |= dict(FinishedJob.objects.filter(id__in=ids).values_list("id", "state"))
    return [found.get(id, "deleted") for id in ids]


def end(worker: Roles, jobs: Sequence[ClaimedJob], state: JobState = JobState.COMPLETED, **fields: Any) -> set[int]:
    acks = [
        Ack(job.id, job.claim, state, flow_id=job.flow_id, is_awaited=job.is_awaited, result="1", **fields)
        for job in jobs
    ]
    return set(worker.ack(acks).accepted)


def run(worker: Roles, me: Any, limit: int = 10) -> list[int]:
    """Fetch and complete jobs; return their ids."""
    jobs = worker.fetch("default", limit, me)
    assert end(worker, jobs) == {job.id for job in jobs}
    return [job.id for job in jobs]


class TestInsert:
    @pytest.mark.parametrize("size", [4, SMALL + 1])
    def test_jobs_that_wait_are_suspended_and_the_others_available(self, engine, size):
        flow = workflow(engine, [], [], after(0, 1), *[after(2)] * (size - 3))

        assert list(flow.job_ids) == sorted(flow.job_ids)
        assert states(flow.job_ids) == ["available"] * 2 + ["suspended"] * (size - 2)
        rows = Job.objects.order_by("id").values_list("pending", "is_awaited", "flow_id")
        [id] = flow.flow_ids
        assert list(rows[:4]) == [(None, True, id), (None, True, id), (2, True, id), (1, None, id)]
        [row] = Flow.objects.all()
        assert (row.total, row.first_id, row.last_id) == (size, flow.job_ids[0], flow.job_ids[-1])
        assert Dependency.objects.count() == size - 1
        audit()

    def test_it_is_stored_in_the_callers_transaction(self, engine):
        with transaction.atomic():
            workflow(engine, [], after(0))
            transaction.set_rollback(True)

        assert (Flow.objects.count(), Job.objects.count(), Dependency.objects.count()) == (0, 0, 0)


class TestAck:
    def test_a_chain_runs_one_job_after_the_other(self, engine, worker, me):
        flow = workflow(engine, [], after(0), after(1))

        assert [run(worker, me) for _ in range(4)] == [[id] for id in flow.job_ids] + [[]]

        [row] = Flow.objects.all()
        assert (row.completed, row.finished_at is not None) == (3, True)
        audit()

    def test_a_job_waits_for_all_of_its_dependencies(self, engine, worker, me):
        flow = workflow(engine, [], [], after(0, 1))

        run(worker, me, 1)
        assert states(flow.job_ids)[2] == "suspended"
        run(worker, me, 1)

        assert states(flow.job_ids)[2] == "available"

    def test_a_failure_stops_what_waits_for_it_to_any_depth(self, engine, worker, me):
        flow = workflow(engine, [], after(0), after(1), after(1, rule=ANY_END))

        end(worker, worker.fetch("default", 10, me), JobState.DISCARDED)

        assert states(flow.job_ids) == ["discarded", "cancelled", "cancelled", "available"]
        [error] = FinishedJob.objects.get(id=flow.job_ids[1]).errors
        assert error["exception"] == "djqueue.exceptions.DependencyFailed"
        assert error["message"] == f"Its dependency {flow.job_ids[0]} ended as discarded."
        audit()

    def test_a_callback_runs_when_the_batch_has_finished(self, engine, worker, me):
        batch = NewFlow(FlowKind.BATCH)
        jobs = [FlowJob(NewJob("tests.task"), 0) for _ in range(3)]
        flow = engine.insert_flow([batch], [*jobs, FlowJob(NewJob("tests.done"), None, [of_flow()])])

        assert [len(run(worker, me, 2)) for _ in range(4)] == [2, 1, 1, 0]
        assert states(flow.job_ids) == ["completed"] * 4
        audit()
