from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from djqueue import Cancel, Discard, Retry, Snooze, Task, TaskTimeout
from djqueue.jobs.records import ClaimedJob
from djqueue.jobs.states import JobState
from djqueue.runtime.outcomes import Outcome, outcome_of
from tests.ledger import tasks

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def job(attempt: int = 1, max_attempts: int = 3) -> ClaimedJob:
    return ClaimedJob(
        1, 1, "default", "x", "[]", "{}", attempt, max_attempts, 0, NOW, None, None, None, NOW, "[]", "{}", NOW
    )


@pytest.mark.parametrize(
    ("error", "attempt", "task", "expected"),
    [
        (ValueError(), 1, tasks.fail_until, Outcome(JobState.AVAILABLE)),
        (ValueError(), 3, tasks.fail_until, Outcome(JobState.DISCARDED)),
        (Snooze(60), 3, tasks.fail_until, Outcome(JobState.SCHEDULED, 60.0, is_spent=False, is_error=False)),
        (Snooze(-1), 1, tasks.fail_until, Outcome(JobState.SCHEDULED, 0.0, is_spent=False, is_error=False)),
        (Cancel("no"), 1, tasks.fail_until, Outcome(JobState.CANCELLED)),
        (Discard("no"), 1, tasks.fail_until, Outcome(JobState.DISCARDED)),
        (Retry(delay=5), 1, tasks.fail_until, Outcome(JobState.RETRYABLE, 5.0)),
        (Retry(delay=5), 3, tasks.fail_until, Outcome(JobState.DISCARDED)),
        (KeyError(), 1, tasks.fail_with, Outcome(JobState.DISCARDED)),
        (Retry(), 1, tasks.fail_with, Outcome(JobState.AVAILABLE)),
        (TaskTimeout(), 1, tasks.fail_with, Outcome(JobState.AVAILABLE)),
        (SystemExit(1), 1, tasks.fail_until, Outcome(JobState.AVAILABLE)),
        (asyncio.CancelledError(), 1, tasks.fail_until, Outcome(JobState.AVAILABLE)),
        (SystemExit(1), 1, tasks.fail_with, Outcome(JobState.DISCARDED)),
    ],
)
def test_what_an_exception_means(error: BaseException, attempt: int, task: Task, expected: Outcome) -> None:
    assert outcome_of(error, job(attempt), task) == expected
