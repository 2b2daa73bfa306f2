"""Of what kind the times are that users see: as Django's own, in web processes and workers, on each store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from djqueue import api, crontab
from djqueue.models import Job
from tests.ledger import sessions, tasks
from tests.processes import eventually, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


@pytest.fixture(params=[True, False], ids=["USE_TZ", "naive"])
def use_tz(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    settings.TIME_ZONE = "Asia/Tokyo"
    settings.USE_TZ = request.param
    monkeypatch.setenv("DJQUEUE_TIME_ZONE", "Asia/Tokyo")
    monkeypatch.setenv("DJQUEUE_USE_TZ", str(int(request.param)))
    return bool(request.param)


def check(times: list[datetime | None], use_tz: bool) -> None:
    now = timezone.now()
    for at in times:
        assert at is not None
        assert timezone.is_aware(at) is use_tz
        assert abs(at - now) < timedelta(minutes=10)


def test_t21_times_are_of_djangos_kind_in_web_processes_and_workers(use_tz: bool) -> None:
    now = sessions.tell_times.enqueue()
    soon = timezone.now() + timedelta(seconds=1)
    # Somebody's own time zone has nothing to do with what a time without a zone means.
    with timezone.override("America/New_York"):
        later = sessions.tell_times.using(run_after=soon).enqueue()
        with transaction.atomic():
            together = sessions.tell_times.using(run_after=soon).enqueue()
        many = sessions.tell_times.using(run_after=soon).enqueue_many([((), {})] * 2)
    failed = tasks.fail.enqueue()
    check([now.enqueued_at, later.enqueued_at, together.enqueued_at, later.job.scheduled_at], use_tz)

    results = [now, later, together, failed, *(sessions.tell_times.get_result(id) for id in many.ids)]
    with worker() as running:
        eventually(
            lambda: all(result.refresh() is None and result.is_finished for result in results), 60, lambda: running.log
        )

    for result in results:
        check([result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at], use_tz)
        if result is not failed:
            assert result.errors == [], running.log
            assert set(result.return_value) == {str(use_tz)}
    for result in (later, together):
        assert result.started_at >= soon
        check([result.task.run_after, result.job.scheduled_at], use_tz)
    job = api.get_job(later)
    assert job is not None
    check([job.inserted_at, job.scheduled_at, job.started_at, job.finished_at, job.attempted_at], use_tz)


def test_t21_the_crontab_tells_its_times_with_a_zone_everywhere(use_tz: bool) -> None:
    entry = crontab.add("every minute", tasks.noop, "* * * * *")

    assert timezone.is_aware(entry.created_at)
    assert abs(entry.created_at - datetime.now(entry.created_at.tzinfo)) < timedelta(minutes=10)
    assert len(crontab.next_times(entry, 3)) == 3


def test_t21_the_tables_say_what_was_meant(use_tz: bool, store: str) -> None:
    if store != "postgres":
        pytest.skip("The tables are those of PostgreSQL.")
    at = timezone.now() + timedelta(hours=1)

    tasks.noop.using(run_after=at).enqueue()
    tasks.noop.using(run_after=at).enqueue_many([((), {})] * 3)

    assert list(Job.objects.values_list("scheduled_at", flat=True)) == [at] * 4
