"""Schedulers whose code differs: during a deploy, after one that was taken back, and of two deployments that share a store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from djqueue.cron import CronDefinition
from djqueue.cron.entry import Declaration
from djqueue.engines.protocol import Engine
from djqueue.exceptions import InvalidJob
from djqueue.maintenance import declarations
from djqueue.maintenance.declarations import KEPT
from djqueue.maintenance.scheduler import Scheduler
from djqueue.tasks import registry
from tests.maintenance.test_scheduler import MINUTE, NOW, SECOND, TASK, minutes, read, ticks, times

pytestmark = pytest.mark.django_db(transaction=True)

Node = Callable[..., Scheduler]


def definition(expression: str = "* * * * *", **fields: Any) -> CronDefinition:
    return CronDefinition(task=TASK, expression=expression, **{"args": (1,), **fields})


@pytest.fixture
def node(open_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch) -> Node:
    """Start a scheduler whose code has these entries."""
    monkeypatch.setattr(registry, "autodiscover", dict)

    def start(name: str, entries: dict[str, CronDefinition], leads: bool = True) -> Scheduler:
        scheduler = open_scheduler(read_code=True)
        scheduler._declarations._name = name
        scheduler._declarations._read = lambda: entries  # type: ignore[method-assign]
        lead(scheduler, leads)
        return scheduler

    return start


def lead(scheduler: Scheduler, leads: bool = True) -> None:
    scheduler._is_leader = lambda: leads


def run(scheduler: Scheduler, now: Any) -> None:
    """Run it as it would have by then."""
    scheduler._declarations._declared = float("-inf")
    scheduler._followed = float("-inf")
    for _ in range(3):
        scheduler.run_once(now=now)


OLD = {"old": definition()}
NEW = {**OLD, "new": definition()}


def test_t19_old_code_that_is_elected_does_not_disable_a_new_entry_nor_lose_its_run(engine: Engine, node: Node) -> None:
    new = node("new", NEW)
    run(new, NOW)

    old = node("old", OLD)  # the new node restarts meanwhile: nothing is heard of it
    run(old, NOW + MINUTE)

    assert read(engine, "new").state == "active"
    assert times(engine, "old") == minutes(1)
    assert times(engine, "new") == []
    run(node("new", NEW), NOW + 2 * MINUTE)
    assert ticks(engine, "new") == [(minutes(1)[0], "skipped: missed"), (minutes(2)[0], "enqueued")]


def test_t19_misfire_decides_about_what_was_due_while_old_code_led(engine: Engine, node: Node) -> None:
    entries = {**OLD, "new": definition("@hourly", misfire="all"), "daily": definition("30 12 * * *")}
    run(node("new", entries), NOW)
    old = node("old", OLD)
    for minute in range(0, 80, 4):
        run(old, NOW + minute * MINUTE)
        run(node("restarting", entries, leads=False), NOW + minute * MINUTE)
        engine.cron.declare(
            Declaration(UUID(int=1), "new", dict.fromkeys(entries, "")), kept=KEPT, now=NOW + minute * MINUTE
        )

    run(node("new", entries), NOW + 80 * MINUTE)

    assert ticks(engine, "new") == [(NOW.replace(hour=13, minute=0, second=0), "enqueued")]
    assert ticks(engine, "daily") == [(NOW.replace(hour=12, minute=30, second=0), "enqueued")]


def test_t19_a_scheduler_without_the_lead_acts_upon_what_only_its_code_has(engine: Engine, node: Node) -> None:
    new = node("new", NEW)
    run(new, NOW)
    lead(new, False)
    old = node("old", OLD)
    due = NOW + 30 * SECOND

    for second in (0, 4, 5, 65):
        run(old, due + second * SECOND)
        run(new, due + second * SECOND)
        assert len(times(engine, "new")) == {0: 0, 4: 0, 5: 1, 65: 2}[second]

    assert {outcome for name in NEW for _, outcome in ticks(engine, name)} == {"enqueued"}
    assert times(engine, "old") == times(engine, "new") == minutes(1, 2)


def test_t19_an_entry_is_disabled_when_no_scheduler_has_declared_it_for_a_while(engine: Engine, node: Node) -> None:
    run(node("new", NEW), NOW)
    old = node("old", OLD)

    run(old, NOW + KEPT)
    assert read(engine, "new").state == "active"
    run(old, NOW + KEPT + SECOND)
    assert read(engine, "new").state == "disabled"

    run(node("new", NEW), NOW + KEPT + MINUTE)
    assert read(engine, "new").state == "active"


def test_t19_a_changed_expression_does_not_flip_back_when_old_code_is_elected(
    engine: Engine, node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = node("old-node", OLD)
    run(old, NOW)
    new = node("new-node", {"old": definition("*/5 * * * *")})
    run(new, NOW + SECOND)
    revision = read(engine, "old").revision

    with caplog.at_level(logging.WARNING, "djqueue"):
        for scheduler in (old, new, old):
            scheduler._is_synchronised = False  # elected again
            run(scheduler, NOW + 2 * SECOND)
        assert "dispute" not in caplog.text  # a deploy takes its time
        monkeypatch.setattr(declarations, "DISPUTE_SECONDS", 0.0)
        for _ in range(3):
            run(old, NOW + 3 * SECOND)

    assert read(engine, "old").definition.expression == "*/5 * * * *"
    assert read(engine, "old").revision == revision
    assert [r.getMessage() for r in caplog.records] == ["cron.dispute entry=old follows=new-node ignores=old-node"]


def test_t19_a_deploy_that_is_taken_back_brings_its_old_expression_back(engine: Engine, node: Node) -> None:
    run(node("new", {"old": definition("*/5 * * * *")}), NOW)

    run(node("old", OLD), NOW + SECOND)

    assert read(engine, "old").definition.expression == "* * * * *"


def test_t19_two_deployments_with_entries_of_their_own_leave_each_other_alone(engine: Engine, node: Node) -> None:
    shop, blog = node("shop", {"shop": definition()}), node("blog", {"blog": definition()})
    run(shop, NOW)
    lead(shop, False)
    run(blog, NOW + SECOND)
    revisions = [entry.revision for entry in engine.cron.entries()]

    for minute in range(1, 6):
        first, second = (shop, blog) if minute % 2 else (blog, shop)
        lead(first, True)
        lead(second, False)
        run(first, NOW + minute * MINUTE)
        run(second, NOW + minute * MINUTE)

    assert [entry.revision for entry in engine.cron.entries()] == revisions
    assert times(engine, "shop") == times(engine, "blog") == minutes(1, 2, 3, 4, 5)


def test_t19_a_job_that_old_code_cannot_make_is_left_to_who_can(engine: Engine, node: Node) -> None:
    run(node("old", OLD), NOW)
    new = node("new", {"old": definition(args=(1, 2))})
    run(new, NOW + SECOND)
    lead(new, False)
    old = node("old", OLD, leads=False)
    old._declarations.read(NOW - SECOND)
    old._declarations._started_at = NOW  # before the new one
    lead(old)
    old._is_synchronised = True

    with mock.patch.object(old, "_job", side_effect=InvalidJob("too many arguments")):
        run(old, NOW + 30 * SECOND)
        assert ticks(engine, "old") == []
        run(new, NOW + 40 * SECOND)

    assert ticks(engine, "old") == [(minutes(1)[0], "enqueued")]


def test_t19_declarations_are_renewed_and_forgotten(engine: Engine) -> None:
    one, other = (Declaration(UUID(int=number), f"node-{number}", {"a": "1"}) for number in (1, 2))

    engine.cron.declare(one, kept=MINUTE, now=NOW)
    seen = engine.cron.declare(other, kept=MINUTE, now=NOW + 50 * SECOND)
    assert {s.id: (s.name, s.entries, s.started_at, s.silent) for s in seen} == {
        one.id: ("node-1", {"a": "1"}, NOW, 50 * SECOND),
        other.id: ("node-2", {"a": "1"}, NOW + 50 * SECOND, timedelta(0)),
    }

    seen = engine.cron.declare(other._replace(entries={}), kept=MINUTE, now=NOW + 61 * SECOND)
    assert [(s.id, s.entries, s.started_at) for s in seen] == [(other.id, {}, NOW + 50 * SECOND)]
