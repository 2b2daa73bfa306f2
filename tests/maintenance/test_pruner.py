from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from djqueue.engines.postgres.connection import connect
from djqueue.maintenance import pruner as module
from djqueue.maintenance.pruner import PASS_SECONDS, Pruner
from djqueue.models import FinishedJob
from djqueue.records import Pruned, PruneRule
from djqueue.states import JobState

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

RULE = PruneRule(JobState.COMPLETED, timedelta(days=1))


def fill(count: int, state: str = "completed", age: str = "2 days", queue: str = "default") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO djqueue_finishedjob (id, state, queue, task, finished_at)"
            " SELECT nextval('djqueue_job_id_seq'), %s, %s, 'tests.task', now() - %s::interval + n * interval '1 us'"
            " FROM generate_series(1, %s) AS n",
            [state, queue, age, count],
        )


class Scripted:
    """An engine that takes as long as it is told."""

    def __init__(self, clock: list[float], took: float) -> None:
        self.clock, self.took = clock, took
        self.limits: list[int] = []

    def prune(self, rules, *, place, limit):
        self.clock[0] += self.took
        self.limits.append(limit)
        return Pruned(limit, "further")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_pass_deletes_what_is_old_and_then_rests(worker):
    fill(1200)
    fill(10, age="1 hour")
    pruner = Pruner(worker, [RULE], is_leader=lambda: True)

    rests = [pruner.run_once()]
    while rests[-1] < PASS_SECONDS:
        rests.append(pruner.run_once())

    assert FinishedJob.objects.count() == 10
    assert 1 < len(rests) < 20
    assert pruner.last_run is not None


def test_who_does_not_lead_deletes_nothing(worker):
    fill(1)

    Pruner(worker, [RULE], is_leader=lambda: False).run_once()

    assert FinishedJob.objects.count() == 1


def test_a_slow_step_makes_the_next_one_smaller_and_a_quick_one_larger(clock):
    slow = Scripted(clock, 0.1)
    pruner = Pruner(slow, [RULE], is_leader=lambda: True)
    for _ in range(6):
        pruner.run_once()
    assert slow.limits == [500, 250, 125, 62, 50, 50]

    slow.took = 0.001
    for _ in range(9):
        pruner.run_once()
    assert slow.limits[-1] == module.LARGEST_STEP


def test_it_rests_for_a_multiple_of_its_work_and_less_when_it_falls_behind(clock):
    engine = Scripted(clock, 0.02)
    pruner = Pruner(engine, [RULE], is_leader=lambda: True)

    assert pruner.run_once() == pytest.approx(0.18, rel=0.01)
    clock[0] += 4 * 60
    assert pruner.run_once() == pytest.approx(0.1, rel=0.01)
    clock[0] += 3600
    assert pruner.run_once() == pytest.approx(0.02, rel=0.01)


def test_a_job_that_somebody_works_on_is_left_for_the_next_pass(worker):
    fill(3)
    with connect("default", "test") as other, other.transaction():
        other.execute("SELECT 1 FROM djqueue_finishedjob ORDER BY id LIMIT 1 FOR UPDATE")
        assert worker.prune([RULE]).count == 2

    assert worker.prune([RULE]).count == 1


def test_each_step_walks_the_index_however_long_the_history(worker):
    fill(20_000, age="20 days", state="discarded")
    fill(100)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE djqueue_finishedjob")
    rules = [PruneRule(JobState.DISCARDED, timedelta(days=30)), RULE]
    step = worker.prune(rules, limit=1000)
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")

    steps = 1
    while step.place is not None:
        step = worker.prune(rules, place=step.place, limit=1000)
        steps += 1

    assert steps == 21
    assert FinishedJob.objects.count() == 20_000


class TestCommand:
    def prune(self, *args: str) -> str:
        out = StringIO()
        call_command("prunejobs", *args, stdout=out)
        return out.getvalue().strip()

    def test_it_prunes_by_the_settings(self):
        fill(3)
        fill(2, "discarded")

        assert self.prune() == "3 finished jobs were deleted."

    def test_a_dry_run_deletes_nothing(self):
        fill(1)

        assert self.prune("--dry-run") == "1 finished job would be deleted."
        assert FinishedJob.objects.count() == 1

    def test_age_state_and_queue_can_be_given(self):
        fill(2, "discarded", queue="mail")
        fill(3, "discarded")
        fill(4, queue="mail")

        assert self.prune("--older-than", "1 hour", "--state", "discarded", "--queue", "mail") == (
            "2 finished jobs were deleted."
        )
        assert self.prune("--older-than", "3600") == "7 finished jobs were deleted."

    def test_the_rules_of_the_settings_can_be_narrowed(self):
        fill(2, "cancelled", age="8 days")
        fill(3, queue="mail")

        assert self.prune("--state", "cancelled", "--queue", "mail") == "0 finished jobs were deleted."
        assert self.prune("--state", "cancelled") == "2 finished jobs were deleted."

    def test_nonsense_is_refused(self):
        with pytest.raises(CommandError, match="is no duration"):
            self.prune("--older-than", "ever")
        with pytest.raises(CommandError, match="is no queue name"):
            self.prune("--queue", "a b")

    def test_wrong_options_are_told(self):
        tasks = {"default": {"BACKEND": "djqueue.backends.PostgresBackend", "OPTIONS": {"retention": {"done": 1}}}}
        with override_settings(TASKS=tasks), pytest.raises(Exception, match="'done' is no state"):
            self.prune()
