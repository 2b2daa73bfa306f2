from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.protocol import Engine
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, NewJob, Pruned, PruneRule
from djqueue.jobs.states import FINAL_STATES, JobState
from djqueue.maintenance import pruner as module
from djqueue.maintenance.pruner import PASS_SECONDS, Pruner
from tests import settings as test_settings
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

RULE = PruneRule(JobState.COMPLETED, timedelta(days=1))


Fill = Callable[..., None]


@pytest.fixture
def fill(engine: Engine, worker: Roles, me: UUID) -> Fill:
    """Leave a history: so many jobs that ended so long ago."""

    def fill(
        count: int, state: JobState = JobState.COMPLETED, age: timedelta = timedelta(days=2), queue: str = "default"
    ) -> None:
        at = engine.now() - age
        engine.insert([NewJob("tests.task", queue=queue)] * count, now=at)
        jobs = worker.fetch(queue, count, me, now=at)
        assert len(worker.ack([Ack(job.id, job.claim, state) for job in jobs], now=at).accepted) == count

    return fill


def kept(engine: Engine) -> int:
    return engine.count(JobFilter(states=FINAL_STATES)).count


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


def test_a_pass_deletes_what_is_old_and_then_rests(engine, worker, fill: Fill):
    fill(1200)
    fill(10, age=timedelta(hours=1))
    pruner = Pruner(worker, [RULE], is_leader=lambda: True)

    rests = [pruner.run_once()]
    while rests[-1] < PASS_SECONDS:
        rests.append(pruner.run_once())

    assert kept(engine) == 10
    assert 1 < len(rests) < 20
    assert pruner.last_run is not None


def test_who_does_not_lead_deletes_nothing(engine, worker, fill: Fill):
    fill(1)

    Pruner(worker, [RULE], is_leader=lambda: False).run_once()

    assert kept(engine) == 1


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


@pytest.mark.parametrize("engine", ["postgres", "valkey"], indirect=True)
class TestCommand:
    @pytest.fixture(autouse=True)
    def _store(self, engine: Engine, settings: Any) -> None:
        if not isinstance(engine, PostgresEngine):
            settings.TASKS = test_settings.tasks("redis")

    def prune(self, *args: str) -> str:
        out = StringIO()
        call_command("prunejobs", *args, stdout=out)
        return out.getvalue().strip()

    def test_it_prunes_by_the_settings(self, engine, fill: Fill):
        fill(3)
        fill(2, JobState.DISCARDED)

        assert self.prune() == "3 finished jobs were deleted."

    def test_a_dry_run_deletes_nothing(self, engine, fill: Fill):
        fill(1)

        assert self.prune("--dry-run") == "1 finished job would be deleted."
        assert kept(engine) == 1

    def test_a_wrong_state_is_told_the_names_of_the_states(self, engine: Engine) -> None:
        with pytest.raises(CommandError, match=r"choose from '?cancelled'?, '?completed'?, '?discarded'?\)"):
            self.prune("--state", "available")

    def test_age_state_and_queue_can_be_given(self, engine, fill: Fill):
        fill(2, JobState.DISCARDED, queue="mail")
        fill(3, JobState.DISCARDED)
        fill(4, queue="mail")

        assert self.prune("--older-than", "1 hour", "--state", "discarded", "--queue", "mail", "--yes") == (
            "2 finished jobs were deleted."
        )
        assert self.prune("--older-than", "PT3600S", "--yes") == "7 finished jobs were deleted."

    @pytest.mark.parametrize("age", ["0", "0 seconds", "1 hour"])
    def test_t30_an_age_of_the_call_deletes_nothing_unasked(self, engine, fill: Fill, age: str):
        fill(3)

        with pytest.raises(CommandError, match=r"3 finished jobs to delete\. Add --yes to do it\. Nothing was done\."):
            self.prune("--older-than", age)
        assert kept(engine) == 3

        assert self.prune("--older-than", age, "--yes") == "3 finished jobs were deleted."

    @pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 3), ("", 3)])
    def test_t30_at_a_terminal_it_asks(self, engine, fill: Fill, monkeypatch, answer: str, left: int):
        fill(3)
        asked: list[str] = []
        monkeypatch.setattr("sys.stdin", mock.Mock(isatty=lambda: True))
        monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)

        with nullcontext() if not left else pytest.raises(CommandError, match="Nothing was done"):
            self.prune("--older-than", "0")

        assert (asked, kept(engine)) == (["Delete 3 finished jobs? [y/N] "], left)

    @pytest.mark.parametrize("age", ["2", "2.5", "3600", "-1", "1e9", "2 fortnights", "\0"])
    def test_t30_a_number_without_a_unit_is_refused(self, engine, fill: Fill, age: str):
        fill(1)

        with pytest.raises(CommandError, match="Invalid duration"):
            self.prune(f"--older-than={age}", "--yes")
        assert kept(engine) == 1

    def test_the_rules_of_the_settings_can_be_narrowed(self, engine, fill: Fill):
        fill(2, JobState.CANCELLED, age=timedelta(days=8))
        fill(3, queue="mail")

        assert self.prune("--state", "cancelled", "--queue", "mail") == "0 finished jobs were deleted."
        assert self.prune("--state", "cancelled") == "2 finished jobs were deleted."

    def test_nonsense_is_refused(self, engine):
        with pytest.raises(CommandError, match="Invalid duration"):
            self.prune("--older-than", "ever")
        with pytest.raises(CommandError, match="Invalid queue name"):
            self.prune("--queue", "a b")

    def test_wrong_options_are_told(self, engine, settings):
        [entry] = settings.TASKS.values()
        tasks = {"default": {**entry, "OPTIONS": {**entry["OPTIONS"], "retention": {"done": 1}}}}
        with override_settings(TASKS=tasks), pytest.raises(Exception, match="Invalid state 'done'"):
            self.prune()
