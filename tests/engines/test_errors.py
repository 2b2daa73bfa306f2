"""What a job keeps of its failed attempts."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from djqueue.jobs.encoding import encode_error
from djqueue.jobs.states import JobState
from tests.engines.test_conformance import NOW, SECOND, ack, fetch_one, insert_one

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

WRONG = NOW + timedelta(days=1)
"""What the clock of the worker says."""


def error_of(attempt: int) -> str:
    return encode_error(ValueError("no"), attempt=attempt, at=WRONG)


def at_of(error: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(error["at"])


class TestTime:
    @pytest.mark.parametrize("state", [JobState.DISCARDED, JobState.RETRYABLE])
    def test_t22_an_error_has_the_time_of_the_stores_clock_as_its_attempt_has(
        self, engine: Any, worker: Any, me: Any, state: JobState
    ) -> None:
        id, moment = insert_one(engine), time.monotonic()
        job = fetch_one(worker, me)

        outcome = ack(job, state, started=moment - 2, finished=moment - 1, error=error_of(1), delay=5.0)
        worker.ack([outcome], now=NOW + 10 * SECOND)

        stored = engine.get(id)
        [error] = stored.errors
        assert NOW < stored.started_at <= at_of(error) <= (stored.finished_at or NOW + 10 * SECOND)
        assert set(error) == {"attempt", "at", "worker", "exception", "message", "traceback"}

    def test_t22_the_error_of_a_job_that_is_cancelled_then_too(self, engine: Any, worker: Any, me: Any) -> None:
        id, moment = insert_one(engine), time.monotonic()
        job = fetch_one(worker, me)
        engine.cancel([id], now=NOW)

        outcome = ack(job, JobState.RETRYABLE, started=moment - 2, finished=moment - 1, error=error_of(1), delay=5.0)
        worker.ack([outcome], now=NOW + 10 * SECOND)

        stored = engine.get(id)
        assert stored.state == JobState.CANCELLED
        assert stored.started_at <= at_of(stored.errors[0]) <= stored.finished_at <= at_of(stored.errors[1])

    def test_t22_the_error_of_a_job_that_runs_at_most_once_too(self, engine: Any, worker: Any, me: Any) -> None:
        id, moment = insert_one(engine), time.monotonic()
        [job] = worker.take("default", 1, me, now=NOW)

        outcome = ack(job, JobState.DISCARDED, started=moment - 2, finished=moment - 1, error=error_of(1), taken=job)
        worker.ack([outcome], now=NOW + 10 * SECOND)

        stored = engine.get(id)
        assert stored.started_at <= at_of(stored.errors[0]) <= stored.finished_at


class TestNumber:
    def test_t32_the_first_and_the_newest_errors_are_kept_and_how_many_are_not(
        self, engine: Any, worker: Any, me: Any
    ) -> None:
        id = insert_one(engine, max_attempts=1_000_000)
        for attempt in range(1, 81):
            job = fetch_one(worker, me)
            state = JobState.RETRYABLE if attempt < 80 else JobState.DISCARDED
            worker.ack([ack(job, state, error=error_of(attempt))], now=NOW)

        errors = engine.get(id).errors
        assert [error.get("attempt") for error in errors[:10]] == list(range(1, 11))
        assert errors[10] == {"left_out": 80 - len(errors) + 1}
        assert [error.get("attempt") for error in errors[11:]] == list(range(80 - len(errors) + 12, 81))
        assert len(errors) == 51

    def test_t32_a_job_whose_worker_dies_again_and_again_keeps_no_more(self, engine: Any, worker: Any, me: Any) -> None:
        id = insert_one(engine, max_attempts=1_000_000)
        for _ in range(60):
            job = fetch_one(worker, me)
            worker.rescue([me], ran={job.id: job.claim}, reason="It was killed.", now=NOW)

        errors = engine.get(id).errors
        assert errors[10] == {"left_out": 10}
        assert len(errors) == 51
