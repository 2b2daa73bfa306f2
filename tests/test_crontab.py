"""The crontab for people, on every kind of store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from djqueue import InvalidCron, UnknownCron, crontab
from djqueue.cron import CronDefinition
from tests.crontab import tasks
from tests.defaults import backend, default_store, live, the_job

__all__ = ["default_store"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("default_store")]
TASK = tasks.plain.module_path


def from_code(name: str = "of-code") -> None:
    definition = CronDefinition(task=TASK, expression="0 3 * * *", args=(1,))
    backend().engine.cron.add(name, definition, code=definition)


def test_an_entry_is_added_with_the_projects_time_zone(settings) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"

    entry = crontab.add("nightly", tasks.plain, "0 3 * * *", args=[1], by="anna")

    assert (entry.definition.timezone, entry.created_by, entry.state) == ("Asia/Tokyo", "anna", "active")
    assert [found.name for found in crontab.entries()] == ["nightly"]


@pytest.mark.parametrize("default_store", ["postgres"], indirect=True)
def test_what_is_written_joins_the_callers_transaction() -> None:
    with transaction.atomic():
        crontab.add("nightly", TASK, "0 3 * * *", args=[1])
        crontab.run_now("nightly")
        transaction.set_rollback(True)

    assert crontab.entries() == []
    assert live() == []


@pytest.mark.parametrize(
    ("task", "expression", "values"),
    [
        ("os.system", "@daily", {"args": ["ls"]}),
        (TASK, "0 0 30 2 *", {"args": [1]}),
        (TASK, "@daily", {}),
        (TASK, "@daily", {"args": [1], "what": 1}),
        (TASK, "@daily", {"args": [1], "timezone": "Nope"}),
    ],
)
def test_what_cannot_work_is_refused(task: str, expression: str, values: dict) -> None:
    with pytest.raises(InvalidCron):
        crontab.add("x", task, expression, **values)

    assert crontab.entries() == []


def test_a_taken_name_is_refused() -> None:
    crontab.add("nightly", TASK, "0 3 * * *", args=[1])

    with pytest.raises(InvalidCron, match="already"):
        crontab.add("nightly", TASK, "0 4 * * *", args=[1])


def test_changes_are_checked_and_kept() -> None:
    crontab.add("nightly", TASK, "0 3 * * *", args=[1])

    entry = crontab.change("nightly", expression="0 4 * * *", by="bert")
    with pytest.raises(InvalidCron):
        crontab.change("nightly", expression="61 * * * *")

    assert (entry.definition.expression, entry.changed_by) == ("0 4 * * *", "bert")
    assert crontab.get("nightly") == entry


def test_pause_and_resume_say_who_and_why() -> None:
    crontab.add("nightly", TASK, "0 3 * * *", args=[1])

    entry = crontab.pause("nightly", "no paper", by="anna")
    assert (entry.state, entry.paused_by, entry.pause_reason) == ("paused", "anna", "no paper")
    entry = crontab.pause("nightly", "still none", by="bert")
    assert (entry.paused_by, entry.pause_reason) == ("anna", "still none")
    entry = crontab.resume("nightly", by="anna")
    assert (entry.state, entry.paused_by, entry.pause_reason) == ("active", "", "")


def test_running_now_takes_no_planned_times_place() -> None:
    crontab.add("nightly", TASK, "0 3 * * *", args=[1], queue="reports")

    ticked = crontab.run_now("nightly", by="anna")

    job = the_job()
    assert job.id == ticked.job_id
    assert (job.task, job.args, job.queue) == (TASK, [1], "reports")
    [tick] = crontab.history("nightly")
    assert (tick.nominal_at, tick.by, tick.job_id) == (None, "anna", job.id)
    assert (crontab.get("nightly").runs, crontab.get("nightly").last_nominal_at) == (0, None)


def test_what_the_code_has_is_not_removed_but_set_back() -> None:
    from_code()
    crontab.change("of-code", expression="0 4 * * *")

    with pytest.raises(InvalidCron, match="would be added again"):
        crontab.remove("of-code")
    assert crontab.get("of-code").drift == ["expression"]
    assert crontab.reset("of-code").drift == []

    entry = crontab.get("of-code")
    assert backend().engine.cron.change(
        entry, entry.definition, code=entry.code, is_paused=False, is_disabled=True, now=datetime.now(UTC)
    )
    crontab.remove("of-code")
    with pytest.raises(UnknownCron):
        crontab.get("of-code")


def test_an_entry_of_the_database_has_nothing_to_be_set_back_to() -> None:
    crontab.add("nightly", TASK, "0 3 * * *", args=[1])

    with pytest.raises(InvalidCron, match="created in the database"):
        crontab.reset("nightly")
    crontab.remove("nightly")
    assert crontab.entries() == []


def test_next_times_know_the_end_and_the_number_of_runs() -> None:
    entry = crontab.add("nightly", TASK, "0 3 * * *", args=[1], timezone="UTC", max_runs=3)
    first, *others = crontab.next_times(entry, 10)

    assert [at - first for at in others] == [timedelta(days=1), timedelta(days=2)]
    assert first.hour == 3
    assert crontab.next_times(replace(entry, definition=replace(entry.definition, expression="@reboot"))) == []


def test_somebody_else_was_faster(monkeypatch) -> None:
    crontab.add("nightly", TASK, "0 3 * * *", args=[1])
    stale = crontab.get("nightly")
    crontab.change("nightly", args=[2])
    monkeypatch.setattr(crontab, "get", lambda name, backend="default": stale)

    with pytest.raises(InvalidCron, match="changed by another user"):
        crontab.pause("nightly")
