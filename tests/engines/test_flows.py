"""Workflows on PostgreSQL: how they are stored, and what the ends of their jobs do to the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connection, transaction

from djqueue.engines.postgres import fetcher
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.flows import acking, effects
from djqueue.engines.postgres.flows.insert import SMALL
from djqueue.exceptions import InvalidJob
from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.flows import DependencyRule, FlowJob, FlowKind, NewFlow, OnFailure
from djqueue.jobs.records import Ack, NewJob
from djqueue.jobs.states import JobState
from djqueue.models import Dependency, FinishedJob, Flow, Job
from tests.engines.flow_audit import audit
from tests.engines.flow_steps import (
    ANY_END,
    FAILURE,
    after,
    end,
    of_flow,
    outcome,
    run,
    states,
    stored,
    workflow,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


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

    def test_a_batch_of_which_a_job_fails_calls_back_at_once_and_at_its_end(self, engine, worker, me):
        flow = workflow(engine, [], [], callbacks=[FAILURE, ANY_END, DependencyRule.SUCCESS])
        on_failure, on_end, on_success = flow.job_ids[2:]

        end(worker, worker.fetch("default", 1, me), JobState.DISCARDED)

        assert states([on_failure, on_end, on_success]) == ["available", "suspended", "suspended"]
        run(worker, me)
        assert states([on_failure, on_end, on_success]) == ["completed", "available", "cancelled"]
        audit()

    def test_the_first_failure_cancels_the_rest_where_the_flow_says_so(self, engine, worker, me):
        flow = workflow(engine, [], [], after(1), [], flow=NewFlow(on_failure=OnFailure.CANCEL))
        first, second = worker.fetch("default", 2, me)

        end(worker, [first], JobState.DISCARDED)
        worker.settle()

        assert states(flow.job_ids) == ["discarded", "executing", "cancelled", "cancelled"]
        assert [asked.id for asked in worker.cancel_requested([second.id])] == [second.id]
        end(worker, [second], JobState.CANCELLED)
        audit()

    def test_a_job_with_a_delay_counts_it_from_its_release(self, engine, worker, me):
        jobs = [FlowJob(NewJob("tests.task"), 0), FlowJob(NewJob("tests.task", delay=timedelta(hours=1)), 0, after(0))]
        flow = engine.insert_flow([NewFlow()], jobs)
        assert Job.objects.get(id=flow.job_ids[1]).scheduled_at is None

        run(worker, me)

        job = Job.objects.get(id=flow.job_ids[1])
        assert (job.state, job.scheduled_at > datetime.now(UTC) + timedelta(minutes=50)) == ("scheduled", True)

    def test_many_dependents_are_released_in_slices(self, engine, worker, me, monkeypatch):
        monkeypatch.setattr(effects.release, "__kwdefaults__", {"limit": 3})
        flow = workflow(engine, [], *[after(0)] * 10)

        run(worker, me, 1)

        assert states(flow.job_ids) == ["completed", *["available"] * 10]
        audit()

    def test_outcomes_are_stored_although_what_follows_fails(self, engine, worker, me, monkeypatch):
        flow = workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)
        with monkeypatch.context() as broken:
            broken.setattr(acking, "release", lambda *args: connection_error())
            assert end(worker, [job]) == {job.id}

        assert states(flow.job_ids) == ["completed", "available"]
        audit()


def connection_error() -> None:
    raise psycopg.errors.QueryCanceled("too long")


class TestStoredUpstreams:
    @pytest.mark.parametrize("size", [1, SMALL + 1])
    def test_a_job_waits_for_one_that_was_stored_before(self, engine, worker, me, size):
        first = engine.insert_one(NewJob("tests.task"))

        flow = workflow(engine, *[[stored(first.id)]] * size)

        assert states(flow.job_ids) == ["suspended"] * size
        assert run(worker, me) == [first.id]
        assert states(flow.job_ids) == ["available"] * size
        audit()

    @pytest.mark.parametrize(
        ("state", "rule", "becomes"),
        [
            (JobState.COMPLETED, DependencyRule.SUCCESS, "available"),
            (JobState.COMPLETED, FAILURE, "cancelled"),
            (JobState.DISCARDED, DependencyRule.SUCCESS, "cancelled"),
            (JobState.DISCARDED, ANY_END, "available"),
        ],
    )
    def test_one_that_has_ended_counts_as_if_it_ended_now(self, engine, worker, me, state, rule, becomes):
        first = engine.insert_one(NewJob("tests.task"))
        end(worker, worker.fetch("default", 1, me), state)

        flow = workflow(engine, [stored(first.id, rule)])

        assert states(flow.job_ids) == [becomes]
        audit()

    def test_one_that_does_not_exist_counts_as_deleted(self, engine):
        assert states(workflow(engine, [stored(12345)]).job_ids) == ["cancelled"]
        audit()

    def test_it_takes_effect_after_the_commit(self, engine):
        first = engine.insert_one(NewJob("tests.task"))

        with transaction.atomic():
            workflow(engine, [stored(first.id)])
            assert Job.objects.get(id=first.id).is_awaited is None

        assert Job.objects.get(id=first.id).is_awaited is True
        audit()


class TestGrowth:
    def test_a_running_job_adds_a_part_to_its_flow(self, engine, worker, me):
        flow = workflow(engine, [], callbacks=[DependencyRule.SUCCESS])
        [job] = worker.fetch("default", 1, me)

        engine.insert_flow(
            [NewFlow(FlowKind.PART, whole_id=flow.flow_ids[0])], [FlowJob(NewJob("tests.task"), 0) for _ in range(2)]
        )
        end(worker, [job])

        assert states(flow.job_ids) == ["completed", "suspended"]
        run(worker, me)
        assert states(flow.job_ids) == ["completed", "available"]
        audit()

    def test_a_flow_that_has_finished_or_does_not_exist_cannot_grow(self, engine, worker, me):
        flow = workflow(engine, [])
        run(worker, me)

        for id in (flow.flow_ids[0], 12345):
            with pytest.raises(InvalidJob, match=f"Cannot add jobs to workflow {id}"):
                engine.insert_flow([NewFlow(FlowKind.PART, whole_id=id)], [FlowJob(NewJob("tests.task"), 0)])
        assert Job.objects.count() == 0

    def test_a_flow_without_jobs_finishes_at_once(self, engine):
        flow = workflow(engine, callbacks=[DependencyRule.SUCCESS])

        assert states(flow.job_ids) == ["available"]
        audit()

    def test_two_unfinished_flows_never_hold_one_key(self, engine, worker, me):
        first = workflow(engine, [], flow=NewFlow(unique_key="k"))

        second = workflow(engine, [], flow=NewFlow(unique_key="k"))

        assert (second.was_duplicate, list(second.flow_ids), list(second.job_ids)) == (True, list(first.flow_ids), [])
        assert Job.objects.count() == 1
        run(worker, me)
        assert not workflow(engine, [], flow=NewFlow(unique_key="k")).was_duplicate
        audit()

    def test_jobs_with_unique_keys_are_refused(self, engine):
        with pytest.raises(InvalidJob, match="unique keys"):
            engine.insert_flow([NewFlow()], [FlowJob(NewJob("tests.task", unique_key="k"), 0)])


class TestOtherEnds:
    """Whatever ends a job is counted, and has its effect on what waits for it."""

    @pytest.mark.parametrize("verb", ["cancel", "discard", "delete"])
    @pytest.mark.parametrize("place", [0, 1], ids=["available", "suspended"])
    def test_control(self, engine, verb, place):
        flow = workflow(engine, [], after(0), after(1), after(1, rule=ANY_END))

        [controlled] = getattr(engine, verb)([flow.job_ids[place]])

        done = {"cancel": "cancelled", "discard": "discarded", "delete": "deleted"}[verb]
        assert controlled.outcome.value == done
        first = ["available"] if place else []
        rest = [] if place else ["cancelled"]
        assert states(flow.job_ids) == [*first, done, *rest, "cancelled", "available"]
        audit(has_deleted=verb == "delete")

    @pytest.mark.parametrize("verb", ["cancel", "discard", "delete"])
    def test_control_of_a_suspended_job_in_a_transaction_is_a_request(self, engine, verb):
        flow = workflow(engine, [], after(0), after(1))

        with transaction.atomic():
            [controlled] = getattr(engine, verb)([flow.job_ids[1]])
            assert controlled.outcome == ControlOutcome.REQUESTED
            assert states(flow.job_ids) == ["available", "suspended", "suspended"]

        done = {"cancel": "cancelled", "discard": "discarded", "delete": "deleted"}[verb]
        assert states(flow.job_ids) == ["available", done, "cancelled"]
        audit(has_deleted=verb == "delete")

    def test_a_rescued_job_without_attempts_left(self, engine, worker, me):
        jobs = [FlowJob(NewJob("tests.task", max_attempts=1), 0), FlowJob(NewJob("tests.task"), 0, after(0))]
        flow = engine.insert_flow([NewFlow()], jobs)
        worker.fetch("default", 1, me)

        assert worker.rescue([me]).discarded == 1

        assert states(flow.job_ids) == ["discarded", "cancelled"]
        audit()

    def test_a_job_that_was_asked_to_end_and_would_be_retried(self, engine, worker, me):
        flow = workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)
        engine.cancel([job.id])

        worker.ack([Ack(job.id, job.claim, JobState.RETRYABLE, error="{}", delay=5.0, flow_id=job.flow_id)])

        assert states(flow.job_ids) == ["cancelled", "cancelled"]
        audit()

    def test_an_outcome_in_the_transaction_of_the_task(self, engine, worker, me):
        flow = workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)

        with engine.transaction():
            assert engine.ack_here(outcome(job))

        assert states(flow.job_ids) == ["completed", "available"]
        audit()

    def test_what_was_left_behind_is_settled_later(self, engine, worker, me, monkeypatch):
        flow = workflow(engine, [], after(0), callbacks=[ANY_END])
        [job] = worker.fetch("default", 1, me)
        with monkeypatch.context() as gone:
            gone.setattr(fetcher, "settle_on", lambda *args: None)
            end(worker, [job], JobState.DISCARDED)

        settled = worker.settle()

        assert (settled.counts > 0, settled.is_full) == (True, False)
        assert states(flow.job_ids) == ["discarded", "cancelled", "available"]
        audit()

    def test_an_event_that_is_refused_does_not_keep_others_from_taking_effect(self, engine, worker, me):
        first, second = workflow(engine, [], after(0)), workflow(engine, [], after(0))
        Job.objects.filter(id=first.job_ids[1]).update(meta={"flow": {"due_at": "never"}})
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO djqueue_flowevent (kind, subject_id, state) SELECT 'ended', unnest(%s::bigint[]), 'completed'",
                [[first.job_ids[0], second.job_ids[0]]],
            )

        worker.settle()

        assert states([first.job_ids[1], second.job_ids[1]]) == ["suspended", "available"]
