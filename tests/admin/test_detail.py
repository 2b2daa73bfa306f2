from __future__ import annotations

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from djqueue.admin import job_url
from djqueue.admin.sources import source_named
from djqueue.admin.timeline import timeline
from djqueue.jobs.records import Job
from tests.admin.conftest import ago, make_finished, make_job, make_worker

LIVE, FINISHED = "/admin/djqueue/job/", "/admin/djqueue/finishedjob/"
EVIL = "<script>alert(1)</script>\"'&"
pytestmark = pytest.mark.django_db


def read(job_id: int) -> Job:
    job = source_named().reader().get(job_id)
    assert job is not None
    return job


def page(client: Client, job_id: int, table: str = LIVE) -> str:
    response = client.get(f"{table}{job_id}/change/")
    assert response.status_code == 200, response.get("Location")
    return response.content.decode()


def test_a_page_shows_arguments_result_and_errors(viewer: Client) -> None:
    error = {
        "attempt": 1,
        "at": "2026-05-01T10:00:00+00:00",
        "exception": "shop.Oops",
        "message": "no ink",
        "traceback": "File x",
    }
    job = make_finished(
        args=[1, "zwei"],
        kwargs={"drei": None},
        result={"sent": True},
        errors=[error, {**error, "attempt": 2}],
    )

    html = page(viewer, job.pk, FINISHED)

    assert "&quot;zwei&quot;" in html
    assert "&quot;drei&quot;: null" in html
    assert "&quot;sent&quot;: true" in html
    assert html.index("Attempt 2: shop.Oops") < html.index("Attempt 1: shop.Oops")
    assert "no ink" in html
    assert re.search(r"<details><summary>Traceback</summary><pre[^>]*>File x</pre></details>", html)


def test_a_completed_job_shows_that_it_returned_nothing_and_others_show_no_result(viewer: Client) -> None:
    assert 'id="djq-result"' in page(viewer, make_finished(result=None).pk, FINISHED)
    assert 'id="djq-result"' not in page(viewer, make_finished(state="discarded").pk, FINISHED)
    assert 'id="djq-result"' not in page(viewer, make_job().pk)


def test_nothing_that_a_row_holds_becomes_html(viewer: Client) -> None:
    worker = make_worker(name=EVIL, hostname=EVIL, queues={EVIL: None})
    values = {
        "queue": EVIL,
        "task": EVIL,
        "args": [EVIL],
        "kwargs": {EVIL: EVIL},
        "errors": [
            {
                "attempt": EVIL,
                "at": EVIL,
                "exception": EVIL,
                "message": EVIL,
                "traceback": EVIL,
                "worker": EVIL,
            },
            EVIL,
        ],
        "meta": {EVIL: EVIL},
        "result": EVIL,
        "cancel_request": {"by": EVIL, "reason": EVIL},
        "unique_key": EVIL,
        "attempted_by": worker.pk,
        "attempted_at": ago(seconds=3),
    }
    live, finished = make_job(state="executing", **values), make_finished(**values)

    for url in (
        LIVE,
        FINISHED,
        f"{LIVE}?queue=<script>alert(1)&task=<script>alert(1)",
        f"{LIVE}?q=<script>alert(1)",
        f"{LIVE}{live.pk}/change/",
        f"{LIVE}{live.pk}/history/",
        f"{FINISHED}{finished.pk}/change/",
        "/admin/djqueue/queue/",
        "/admin/djqueue/worker/",
        f"/admin/djqueue/worker/{worker.pk}/change/",
    ):
        html = viewer.get(url).content.decode()
        assert "<script>alert" not in html, url
        if "?" not in url:
            assert "&lt;script&gt;alert" in html, url


def test_templates_call_and_follow_nothing_in_the_data(viewer: Client) -> None:
    job = make_job(
        args=["{{ 1|add:1 }}", "{% now 'Y' %}"],
        errors=[{"items": 1, "keys": 2, "message": {"deep": 3}}, 7, None],
        meta={"keys": []},
    )

    html = page(viewer, job.pk)

    assert "{{ 1|add:1 }}" in html
    assert "{&#x27;deep&#x27;: 3}" in html


def test_a_row_that_somebody_edited_by_hand_can_still_be_read(viewer: Client) -> None:
    job = make_job(args={"no": "list"}, kwargs=5, errors="none", meta=[1], cancel_request="stop")

    assert "&quot;no&quot;: &quot;list&quot;" in page(viewer, job.pk)


def test_giant_arguments_are_cut(viewer: Client) -> None:
    job = make_job(args=["x" * 300_000])

    html = page(viewer, job.pk)

    assert len(html) < 150_000
    assert "characters in all" in html


def test_a_live_job_that_has_finished_leads_to_its_new_page_and_the_other_way_round(viewer: Client) -> None:
    live, finished = make_job(), make_finished()

    assert viewer.get(job_url(finished.pk))["Location"] == f"{FINISHED}{finished.pk}/change/"
    assert viewer.get(f"{FINISHED}{live.pk}/change/")["Location"] == job_url(live.pk)
    assert viewer.get(f"{LIVE}{finished.pk}/", follow=True).redirect_chain[-1][0] == f"{FINISHED}{finished.pk}/change/"


@pytest.mark.parametrize("object_id", ["999999999", "x", "1 OR 1", "9" * 30, "-1", "²"])
def test_a_job_that_is_not_there_is_not_found(viewer: Client, object_id: str) -> None:
    assert viewer.get(f"{LIVE}{object_id}/change/").status_code == 404


def test_a_page_takes_few_queries_and_one_statement_for_both_tables(viewer: Client) -> None:
    job = make_job()

    with CaptureQueriesContext(connection) as queries:
        page(viewer, job.pk)

    assert len(queries) <= 8
    [statement] = [query["sql"] for query in queries if "djqueue_finishedjob" in query["sql"]]
    assert "djqueue_job" in statement


def test_a_job_that_was_never_claimed_shows_dashes_and_no_sentinels(viewer: Client) -> None:
    html = page(viewer, make_job().pk)

    assert "1970" not in html
    assert "00000000" not in html
    assert "<dt>Worker</dt><dd>–</dd>" in re.sub(r"\s+", " ", html)


def test_the_worker_is_linked(viewer: Client) -> None:
    worker = make_worker()
    job = make_job(state="executing", attempted_by=worker.pk, attempted_at=ago(seconds=1))

    assert f'href="/admin/djqueue/worker/{worker.pk}/change/"' in page(viewer, job.pk)


def test_the_timeline_tells_the_life_of_a_job_with_the_time_between() -> None:
    start = ago(minutes=10)

    def at(seconds: float):  # type: ignore[no-untyped-def]
        return start + timedelta(seconds=seconds)

    failed = {"attempt": 1, "at": at(63).isoformat(), "exception": "a.b.ValueError", "message": "no\nink"}
    job = make_finished(
        inserted_at=at(0), scheduled_at=at(90), ready_at=at(90.5), started_at=at(62), attempted_at=at(92), attempt=2,
        attempted_by=uuid4(), finished_at=at(95), errors=[failed, "x", {"at": "never"}],
    )  # fmt: skip

    events = timeline(read(job.pk), ago(seconds=0))

    assert [(event.title, event.gap) for event in events] == [
        ("Enqueued", ""),
        ("First started", "+ 1 min 2 s"),
        ("Attempt 1 failed", "+ 1.0 s"),
        ("Due", "+ 27 s"),
        ("Available to workers", "+ 500 ms"),
        ("Attempt 2 started", "+ 1.5 s"),
        ("Completed", "+ 3.0 s"),
    ]
    assert events[2].note == "ValueError: no"


def test_the_timeline_shows_what_is_still_to_come() -> None:
    job = make_job(state="scheduled", scheduled_at=ago(minutes=-5), expires_at=ago(minutes=-9))

    events = timeline(read(job.pk), ago(seconds=0))

    assert [(event.title, event.is_future) for event in events] == [
        ("Enqueued", False),
        ("Will be due", True),
        ("Expires unless started", True),
    ]


def test_t41_a_cancelled_job_says_by_whom_and_why_in_words(viewer: Client) -> None:
    at = "2026-01-02T03:04:05+00:00"
    job = make_finished(
        state="cancelled",
        errors=[
            {
                "exception": "djqueue.exceptions.Cancel",
                "by": "anna",
                "at": at,
                "message": "Not needed.",
                "traceback": "",
            }
        ],
        cancel_request={"by": "anna", "at": at, "reason": "Not needed."},
    )

    html = page(viewer, job.pk, FINISHED)

    assert "<h3>Cancelled by anna</h3>" in html
    assert re.search(r"<p>Cancelled by anna 2026-01-02 03:04:05[^<]*: Not needed\.</p>", html)
    assert "djqueue.exceptions.Cancel" not in html
    assert "&quot;reason&quot;" not in html
    assert "failed" not in html.partition("djqueue-timeline")[2]


def test_a_job_that_was_discarded_before_it_ran_has_no_failed_attempt(viewer: Client) -> None:
    entry = {
        "attempt": 0,
        "at": ago(seconds=5).isoformat(),
        "by": "anna",
        "exception": "djqueue.exceptions.Discard",
        "message": "Not needed.",
        "traceback": "",
    }
    job = make_finished(
        state="discarded", attempt=0, inserted_at=ago(minutes=1), scheduled_at=ago(minutes=-5), errors=[entry]
    )

    assert [event.title for event in timeline(read(job.pk), ago(seconds=0))] == ["Enqueued", "Discarded"]
    assert "<h3>Discarded by anna</h3>" in page(viewer, job.pk, FINISHED)


def test_a_task_that_discards_itself_has_a_failed_attempt() -> None:
    entry = {"attempt": 1, "at": ago(seconds=5).isoformat(), "exception": "djqueue.exceptions.Discard"}
    job = make_finished(state="discarded", errors=[entry])

    assert "Attempt 1 failed" in [event.title for event in timeline(read(job.pk), ago(seconds=0))]


def test_the_first_attempt_starts_once_in_the_timeline() -> None:
    job = make_job(
        state="retryable",
        attempt=1,
        attempted_by=uuid4(),
        attempted_at=ago(seconds=9),
        started_at=ago(seconds=8),
        scheduled_at=ago(days=-1),
    )

    titles = [event.title for event in timeline(read(job.pk), ago(seconds=0))]

    assert sorted(titles) == ["Attempt 1 started", "Enqueued", "Will be due"]
