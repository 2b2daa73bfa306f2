"""The scheduler on PostgreSQL: what a transaction, and rows that somebody edits, ask of it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from djqueue.engines.postgres import PostgresEngine, execution
from djqueue.exceptions import EngineUnavailable
from djqueue.maintenance.scheduler import Scheduler
from djqueue.models import CronEntry as Row
from djqueue.models import CronTick, Job
from tests.maintenance.test_scheduler import MINUTE, NOW, Open, add, minutes, settle, ticks, times

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


@pytest.mark.parametrize("statement", ["insert", "cron_tick"])
@pytest.mark.parametrize("is_before", [True, False])
def test_b42_a_crash_between_the_writes_leaves_both_or_neither(
    engine, open_scheduler: Open, statement: str, is_before: bool
) -> None:
    add(engine)
    scheduler = open_scheduler()
    real = execution.run_on

    def killed(cursor: Any) -> Any:
        execute = real(cursor)

        def run(name: str, params: Any) -> Any:
            if name == statement:
                if not is_before:
                    execute(name, params)
                cursor.connection.close()
                raise EngineUnavailable("killed")
            return execute(name, params)

        return run

    with mock.patch("djqueue.engines.postgres.engine.run_on", killed), pytest.raises(EngineUnavailable):
        settle(scheduler, NOW + MINUTE)

    assert (Job.objects.count(), CronTick.objects.count()) == (0, 0)
    settle(open_scheduler(), NOW + MINUTE)
    assert times(engine) == minutes(1)
    assert Job.objects.count() == 1


def test_a_tick_that_is_there_already_is_no_obstacle(engine, scheduler) -> None:
    add(engine)
    CronTick.objects.create(entry=Row.objects.get(), nominal_at=minutes(1)[0], outcome="enqueued")

    settle(scheduler, NOW + 2 * MINUTE)

    assert times(engine) == minutes(1, 2)
    assert Job.objects.count() == 1


def test_arguments_edited_into_something_else_are_a_skipped_time(engine, scheduler: Scheduler) -> None:
    add(engine)
    Row.objects.update(args={"a": 1})

    settle(scheduler, NOW + MINUTE)

    assert [found.startswith("skipped: invalid: ") for _, found in ticks(engine)] == [True]
