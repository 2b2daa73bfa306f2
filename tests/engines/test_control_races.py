"""A job is controlled at the moment when a worker, or another caller, changes it: two connections, a forced order."""

from __future__ import annotations

import pytest

from djqueue.engines.postgres.statements import sql
from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.records import Ack, NewJob
from djqueue.jobs.states import JobState
from tests.engines.test_races import (
    LONG,
    ack_params,
    background,  # noqa: F401  a fixture
    engine,  # noqa: F401  a fixture
    in_thread,
    rescue_params,
    session,  # noqa: F401  a fixture
    wait_until_somebody_is_blocked,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def blocked(engine, background):  # noqa: F811
    """Start a verb in another thread, which must then wait for somebody's lock."""

    def start(verb, *args):
        future = background.submit(in_thread(engine, lambda: verb(*args)))
        wait_until_somebody_is_blocked()
        return future

    return start


def insert(engine, **fields) -> int:  # noqa: F811
    return engine.insert([NewJob("tests.task", **fields)])[0].id


def requeue(job) -> Ack:
    return Ack(job.id, job.claim, JobState.RETRYABLE, delay=60.0, error='{"message": "no"}')


def requeue_params(job) -> dict[str, object]:
    return {
        "id": [job.id], "claim": [job.claim], "state": ["retryable"], "is_spent": [True], "started_ago": [0.0],
        "delay": [60.0], "error": [], "note": [], "now": None,
    }  # fmt: skip


def control_params(*ids, **values) -> dict[str, object]:
    return {
        "ids": list(ids),
        "only": None,
        "by": "anna",
        "reason": "Stop.",
        "is_settling": False,
        "now": None,
        **values,
    }


class TestCancelAgainstFetch:
    def test_a_cancel_that_waits_for_a_fetch_asks_the_job_to_end(self, engine, worker, me, session, blocked):  # noqa: F811
        id = insert(engine)
        session.execute(sql("fetch"), {"queue": "default", "limit": 1, "worker": me, "now": None})

        cancelled = blocked(engine.cancel, [id])
        session.commit()

        assert cancelled.result(LONG)[0].outcome == ControlOutcome.REQUESTED
        assert [request.id for request in worker.cancel_requested([id])] == [id]

    def test_a_fetch_passes_over_a_job_that_is_being_cancelled(self, engine, worker, me, session):  # noqa: F811
        id = insert(engine)
        other = insert(engine)
        session.execute(sql("cancel"), control_params(id))

        assert [job.id for job in worker.fetch("default", 10, me)] == [other]
        session.rollback()

        assert [job.id for job in worker.fetch("default", 10, me)] == [id]


class TestCancelAgainstAck:
    def test_an_ack_that_waits_for_the_request_does_not_let_the_job_run_again(
        self, engine, worker, me, session, blocked  # noqa: F811
    ):  # fmt: skip
        id = insert(engine)
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("cancel"), control_params(id))

        accepted = blocked(worker.ack, [requeue(job)])
        session.commit()

        assert accepted.result(LONG).accepted == {id}
        assert (engine.get(id).state, [e["message"] for e in engine.get(id).errors]) == ("cancelled", ["no", "Stop."])

    def test_an_ack_that_waits_for_a_request_that_is_undone_lets_it_run_again(
        self, engine, worker, me, session, blocked  # noqa: F811
    ):  # fmt: skip
        id = insert(engine)
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("cancel"), control_params(id))

        accepted = blocked(worker.ack, [requeue(job)])
        session.rollback()

        assert accepted.result(LONG).accepted == {id}
        assert engine.get(id).state == "retryable"

    def test_a_cancel_that_waits_for_the_end_of_a_job_says_that_it_is_over(
        self, engine, worker, me, session, blocked  # noqa: F811
    ):  # fmt: skip
        id = insert(engine)
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("ack"), ack_params(job))

        cancelled = blocked(engine.cancel, [id])
        session.commit()

        assert cancelled.result(LONG)[0].reason == "already completed"
        assert engine.get(id).state == "completed"

    def test_a_cancel_that_waits_for_a_failure_ends_what_would_be_retried(
        self, engine, worker, me, session, blocked  # noqa: F811
    ):  # fmt: skip
        id = insert(engine)
        [job] = worker.fetch("default", 1, me)
        session.execute(sql("ack_requeue"), requeue_params(job))

        cancelled = blocked(engine.cancel, [id])
        session.commit()

        assert cancelled.result(LONG)[0].outcome == ControlOutcome.CANCELLED
        assert engine.get(id).state == "cancelled"


class TestCancelAgainstRescue:
    def test_a_rescue_leaves_a_job_that_is_being_asked_to_the_next_one(self, engine, worker, me, session):  # noqa: F811
        id = insert(engine)
        worker.fetch("default", 1, me)
        session.execute(sql("cancel"), control_params(id))

        assert worker.rescue([me]).count == 0
        session.commit()

        assert worker.rescue([me]).cancelled == 1
        assert engine.get(id).state == "cancelled"

    def test_a_cancel_that_waits_for_a_rescue_ends_what_came_back(self, engine, worker, me, session, blocked):  # noqa: F811
        id = insert(engine)
        worker.fetch("default", 1, me)
        session.execute(sql("rescue"), rescue_params(me))

        cancelled = blocked(engine.cancel, [id])
        session.commit()

        assert cancelled.result(LONG)[0].outcome == ControlOutcome.CANCELLED


class TestRetryAgainstDelete:
    def test_a_retry_that_waits_for_a_delete_finds_nothing(self, engine, worker, me, session, blocked):  # noqa: F811
        id = insert(engine)
        engine.discard([id])
        session.execute(sql("delete_finished"), control_params(id))

        retried = blocked(engine.retry, [id])
        session.commit()

        assert retried.result(LONG)[0].reason == "no such job"
        assert engine.get(id) is None

    def test_a_delete_that_waits_for_a_retry_deletes_what_came_back(self, engine, session, blocked):  # noqa: F811
        id = insert(engine)
        engine.discard([id])
        session.execute(sql("retry"), control_params(id))

        deleted = blocked(engine.delete, [id])
        session.commit()

        assert deleted.result(LONG)[0].outcome == ControlOutcome.DELETED
        assert engine.get(id) is None

    def test_a_delete_of_finished_jobs_only_leaves_what_came_back(self, engine, session, blocked):  # noqa: F811
        id = insert(engine)
        engine.discard([id])
        session.execute(sql("retry"), control_params(id))

        deleted = blocked(lambda ids: engine.delete(ids, only=[JobState.DISCARDED]), [id])
        session.commit()

        assert deleted.result(LONG)[0].reason == "available"
        assert engine.get(id).state == "available"

    def test_two_retries_bring_a_job_back_once(self, engine, session, blocked):  # noqa: F811
        id = insert(engine)
        engine.discard([id])
        session.execute(sql("retry"), control_params(id))

        retried = blocked(engine.retry, [id])
        session.commit()

        assert retried.result(LONG)[0].reason == "available"
        assert engine.get(id).state == "available"
