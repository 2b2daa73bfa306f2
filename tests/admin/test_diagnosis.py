"""Why a job does not run now: one sentence for each case, as its page shows it."""

from __future__ import annotations

import html as html_module
import re
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from djqueue.models import AbstractJob, FinishedJob, Queue
from tests.admin.conftest import ago, make_finished, make_job, make_worker

pytestmark = pytest.mark.django_db


def said(client: Client, job: AbstractJob) -> str:
    table = "finishedjob" if isinstance(job, FinishedJob) else "job"
    page = client.get(f"/admin/djqueue/{table}/{job.pk}/change/").content.decode()
    found = re.search(r'class="djq-now">(.*?)</div>', page, re.DOTALL)
    assert found is not None
    return " ".join(html_module.unescape(re.sub(r"<[^>]*>", "", found[1])).split())


def executing(**values: Any) -> AbstractJob:
    return make_job(state="executing", attempt=1, attempted_at=ago(seconds=75), **values)


def test_a_scheduled_job_says_when_it_is_due(viewer: Client) -> None:
    assert "Due in 5 min" in said(viewer, make_job(state="scheduled", scheduled_at=ago(seconds=-300.9)))


def test_a_due_job_says_whether_anybody_is_there_to_make_it_available(viewer: Client) -> None:
    job = make_job(state="scheduled", scheduled_at=ago(seconds=20))

    assert "Due for 20 s: no worker is alive to make it available." in said(viewer, job)
    make_worker()
    assert "Due for 20 s: about to be made available." in said(viewer, job)


def test_a_retryable_job_says_what_failed_and_when_the_next_attempt_is_due(viewer: Client) -> None:
    job = make_job(state="retryable", attempt=3, scheduled_at=ago(minutes=-2, seconds=-0.9))

    assert "Attempt 3 of 20 failed. Due in 2 min" in said(viewer, job)


def test_a_suspended_job_waits_for_others(viewer: Client) -> None:
    assert "Waits for other jobs to finish." in said(viewer, make_job(state="suspended"))


def test_an_available_job_says_that_nobody_serves_its_queue(viewer: Client) -> None:
    make_worker(queues={"default": None})
    make_worker(queues={"mail": 3}, died_at=ago(seconds=1))
    make_worker(queues={"mail": None}, beat_at=ago(seconds=60))

    assert "Available for 12 s: no live worker serves queue 'mail'." in said(viewer, make_job(queue="mail"))


def test_an_available_job_says_how_many_serve_its_queue(viewer: Client) -> None:
    job = make_job()

    make_worker()
    assert "one worker serves queue 'default'" in said(viewer, job)
    make_worker()
    assert "2 workers serve queue 'default'" in said(viewer, job)


def test_an_available_job_says_that_its_workers_are_shutting_down(viewer: Client) -> None:
    make_worker(is_draining=True)

    assert "every worker that serves queue 'default' is shutting down." in said(viewer, make_job())


def test_an_available_job_of_a_paused_queue_says_who_paused_it_and_why(viewer: Client) -> None:
    make_worker()
    Queue.objects.create(name="default", paused_at=ago(minutes=5), paused_by="anna", pause_reason="out of paper.")

    assert "Queue 'default' was paused by anna 5 min ago because: out of paper." in said(viewer, make_job())


def test_a_queue_may_be_paused_without_a_name_or_a_reason(viewer: Client) -> None:
    Queue.objects.create(name="default", paused_at=ago(minutes=5))

    assert "Queue 'default' was paused 5 min ago." in said(viewer, make_job())


def test_an_executing_job_says_where_since_when_and_the_last_beat(viewer: Client) -> None:
    worker = make_worker(name="web-3:1", beat_at=ago(seconds=1))

    assert re.search(
        r"Executing on worker web-3:1 for 1 min 15 s, since [\d-]+ [\d:.]+ UTC; last beat 1\.\d s ago\.",
        said(viewer, executing(attempted_by=worker.pk)),
    )


def test_an_executing_job_says_that_its_worker_is_silent_dead_or_gone(viewer: Client) -> None:
    silent = make_worker(name="one", beat_at=ago(seconds=40))
    dead = make_worker(name="two", died_at=ago(seconds=1))

    assert "Executing on worker one, which last beat 40 s ago" in said(viewer, executing(attempted_by=silent.pk))
    assert "Worker two died while executing it" in said(viewer, executing(attempted_by=dead.pk))
    assert "whose record is gone" in said(viewer, executing(attempted_by=uuid4()))
    assert "the store does not say where" in said(viewer, make_job(state="executing"))


def test_a_live_job_whose_task_is_not_known_here_says_so(viewer: Client) -> None:
    assert "No task named 'shop.tasks.send' is known here." in said(viewer, make_job())
    assert "is known here" not in said(viewer, make_finished())


def test_a_live_job_says_who_asked_for_its_cancellation(viewer: Client) -> None:
    job = make_job(cancel_request={"by": "anna", "reason": "Not needed."})

    assert "Cancellation was asked for by anna. Not needed." in said(viewer, job)


def test_a_job_that_may_expire_says_when(viewer: Client) -> None:
    assert "Expires in 59 s" in said(viewer, make_job(expires_at=ago(seconds=-59.4)))
    assert "Expired 30 s ago: it will be cancelled." in said(viewer, make_job(expires_at=ago(seconds=30)))


def test_a_finished_job_says_how_it_ended(viewer: Client) -> None:
    error = {"attempt": 20, "exception": "builtins.ValueError", "message": "no ink"}

    assert "Completed in attempt 1 of 20." in said(viewer, make_finished())
    assert "Cancelled; it will not run again." in said(viewer, make_finished(state="cancelled"))
    assert "Discarded after attempt 20 of 20; it will not run again. Last error: ValueError: no ink" in said(
        viewer, make_finished(state="discarded", attempt=20, errors=[error])
    )


def test_a_job_that_was_ended_on_purpose_says_why_and_names_no_error(viewer: Client) -> None:
    discarded = {"attempt": 0, "by": "anna", "exception": "djqueue.exceptions.Discard", "message": "Not needed."}
    cancelled = {"attempt": 1, "exception": "djqueue.exceptions.Cancel", "message": "Withdrawn: too late."}

    assert "Discarded before its first attempt; it will not run again. Reason: Not needed." in said(
        viewer, make_finished(state="discarded", attempt=0, errors=[discarded])
    )
    assert "Cancelled; it will not run again. Reason: Withdrawn: too late." in said(
        viewer, make_finished(state="cancelled", errors=[cancelled])
    )
