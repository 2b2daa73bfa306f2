from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import cycle
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from djqueue.engines.postgres import listing
from djqueue.engines.postgres.reading import ReadTooSlow
from djqueue.jobs.states import JobState
from djqueue.models import FinishedJob, Job
from tests.admin.conftest import Behind, ago, make_finished, make_job, make_worker

LIVE, FINISHED = "/admin/djqueue/job/", "/admin/djqueue/finishedjob/"
JSON_COLUMNS = ("args", "kwargs", "errors", "result", "meta", "cancel_request")
pytestmark = pytest.mark.django_db


def ids(client: Client, url: str, **params: str) -> list[int]:
    response = client.get(url, params)
    assert response.status_code == 200, response.get("Location")
    return [row.shown.number for row in response.context["cl"].result_list]


def cell(html: str, name: str) -> str:
    found = re.search(rf'class="field-{name}[^"]*">(.*?)</td>', html, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_live_job_is_shown_in_human_words(viewer: Client) -> None:
    worker = make_worker(name="web-7:2")
    make_job(
        state="executing",
        attempt=2,
        attempted_by=worker.pk,
        attempted_at=ago(seconds=75),
        inserted_at=ago(hours=2, minutes=5),
    )

    html = viewer.get(LIVE).content.decode()

    assert cell(html, "attempts") == "2 of 20"
    assert cell(html, "now") == "runs 1 min 15 s"
    assert "2 h ago" in cell(html, "age")
    assert "web-7:2" in cell(html, "worker")
    assert reverse("admin:djqueue_worker_change", args=[worker.pk]) in cell(html, "worker")
    assert '<span class="djq-badge djq-executing">executing</span>' in cell(html, "state_badge")


def test_a_finished_job_is_shown_with_its_waiting_and_running_time(viewer: Client) -> None:
    end = ago(seconds=20)
    make_finished(
        finished_at=end,
        attempted_at=end - timedelta(seconds=3),
        ready_at=end - timedelta(seconds=15),
        attempted_by=uuid4(),
    )

    html = viewer.get(FINISHED).content.decode()

    assert re.sub("<[^>]*>", "", cell(html, "took")) == "3.0 s waited 12 s"
    assert "20 s ago" in cell(html, "finished")


def test_a_job_that_nobody_claimed_shows_dashes_and_no_sentinels(viewer: Client) -> None:
    make_job(state="suspended")
    make_finished(state="cancelled")

    live, finished = (viewer.get(url).content.decode() for url in (LIVE, FINISHED))

    assert cell(live, "worker") == cell(live, "now") == "–"
    assert cell(finished, "worker") == cell(finished, "took") == "–"
    for html in (live, finished):
        assert "00000000" not in html
        assert "1970" not in html


@pytest.mark.parametrize("url", [LIVE, FINISHED])
def test_a_list_loads_no_json_and_counts_no_table(viewer: Client, url: str) -> None:
    for _ in range(3):
        make_job()
        make_finished()

    with CaptureQueriesContext(
        connection,
    ) as queries:
        viewer.get(url)

    statements = [query["sql"] for query in queries if "job" in query["sql"]]
    assert any("LIMIT 101" in sql for sql in statements)
    for sql in statements:
        # The beginnings of those of the page are cut by the database.
        whole = re.sub(r"left\(.*?, 161\)", "", sql)
        assert not any(re.search(rf"\b{column}\b", whole) for column in JSON_COLUMNS)
        assert "count(" not in sql.lower()


@pytest.mark.parametrize("url", [LIVE, FINISHED])
@pytest.mark.parametrize("rows", [3, 120])
def test_the_number_of_queries_does_not_grow_with_the_rows(viewer: Client, url: str, rows: int) -> None:
    for _ in range(rows):
        worker = make_worker()
        make_job(state="executing", attempted_by=worker.pk, attempted_at=ago(seconds=1))
        make_finished(attempted_by=worker.pk, attempted_at=ago(seconds=9))

    with CaptureQueriesContext(connection) as queries:
        viewer.get(url)

    assert len(queries) <= 30


def test_filters_narrow_the_live_list(viewer: Client) -> None:
    plain = make_job()
    mail = make_job(queue="mail", task="shop.tasks.post")
    later = make_job(state="scheduled", scheduled_at=ago(hours=-1), inserted_at=ago(days=3))

    assert ids(viewer, LIVE) == [later.pk, mail.pk, plain.pk]
    assert ids(viewer, LIVE, state="scheduled") == [later.pk]
    assert ids(viewer, LIVE, state="available") == [mail.pk, plain.pk]
    assert ids(viewer, LIVE, queue="mail") == [mail.pk]
    assert ids(viewer, LIVE, task="shop.tasks.post") == [mail.pk]
    assert ids(viewer, LIVE, within="hour") == [mail.pk, plain.pk]
    assert ids(viewer, LIVE, queue="mail", state="scheduled") == []


def test_filters_narrow_the_finished_list_which_is_newest_first(viewer: Client) -> None:
    old = make_finished(finished_at=ago(days=3), state="discarded")
    new = make_finished(finished_at=ago(minutes=3))
    middle = make_finished(finished_at=ago(hours=3), queue="mail")

    assert ids(viewer, FINISHED) == [new.pk, middle.pk, old.pk]
    assert ids(viewer, FINISHED, state="discarded") == [old.pk]
    assert ids(viewer, FINISHED, within="day") == [new.pk, middle.pk]
    assert ids(viewer, FINISHED, queue="mail") == [middle.pk]


def test_a_search_finds_a_task_by_its_beginning_and_jobs_by_their_worker(viewer: Client) -> None:
    worker = uuid4()
    one = make_job(task="shop.tasks.resize_image")
    two = make_job(task="blog.tasks.resize_image", state="executing", attempted_by=worker, attempted_at=ago(seconds=1))

    assert ids(viewer, LIVE, q="shop.tasks.resize") == [one.pk]
    assert ids(viewer, LIVE, q="shop_tasks") == []
    assert ids(viewer, LIVE, q="%") == []
    assert ids(viewer, LIVE, q=f" {worker} ") == [two.pk]
    assert ids(viewer, LIVE, q="9" * 30) == []


@pytest.mark.parametrize("url", [LIVE, FINISHED])
def test_a_search_for_an_id_leads_to_the_job_in_whichever_table_it_is(viewer: Client, url: str) -> None:
    live, finished = make_job(), make_finished()

    assert viewer.get(url, {"q": str(live.pk)})["Location"] == f"{LIVE}{live.pk}/change/"
    assert viewer.get(url, {"q": f"#{finished.pk}"})["Location"] == f"{FINISHED}{finished.pk}/change/"
    assert ids(viewer, url, q="999999999") == []


@pytest.mark.parametrize("url", [LIVE, FINISHED])
def test_pages_show_each_job_once_forwards_and_backwards(viewer: Client, url: str) -> None:
    moment = ago(seconds=30)  # the same for all: only the id tells them apart
    for _ in range(250):
        make_finished(finished_at=moment) if url == FINISHED else make_job()
    model = FinishedJob if url == FINISHED else Job
    everything = sorted(model.objects.values_list("pk", flat=True), reverse=True)

    page = viewer.get(url).context["cl"]
    pages = [page]
    while page.older_url:
        # New jobs at the head of the list do not move what is on the later pages.
        make_finished(finished_at=ago(seconds=0)) if url == FINISHED else make_job()
        page = viewer.get(url + page.older_url).context["cl"]
        pages.append(page)
    seen = [row.shown.number for page in pages for row in page.result_list]
    back = viewer.get(url + pages[2].newer_url).context["cl"]

    assert [len(page.result_list) for page in pages] == [100, 100, 50]
    assert seen == everything
    assert [row.shown.number for row in back.result_list] == seen[100:200]
    assert viewer.get(url + pages[1].newer_url).context["cl"].newer_url
    assert [row.shown.number for row in viewer.get(url + pages[2].newest_url).context["cl"].result_list][2:] == seen[
        :98
    ]


@pytest.mark.parametrize("url", [LIVE, FINISHED])
@pytest.mark.parametrize("place", ["x", "1_2_3", "2026-01-01T00:00:00_5", "_", "9" * 40])
def test_an_invalid_position_is_refused(viewer: Client, url: str, place: str) -> None:
    assert viewer.get(url, {"after": place}).status_code == 400
    assert viewer.get(url, {"before": place}).status_code == 400


def test_a_column_cannot_be_asked_to_sort_or_filter_by_what_no_index_serves(viewer: Client) -> None:
    first, second = make_job(priority=-5), make_job(priority=5)

    assert ids(viewer, LIVE, o="8") == [second.pk, first.pk]
    for lookup in ("args__0__startswith", "kwargs__token", "priority__gt", "state__in", "id"):
        assert viewer.get(LIVE, {lookup: "1"}).status_code == 400, lookup


def test_jobs_are_counted_where_that_is_quick(viewer: Client) -> None:
    for _ in range(150):
        make_job()

    with mock.patch.object(listing, "COUNT_LIMIT", timedelta(seconds=30)):
        exact = viewer.get(LIVE).context["cl"]
        with mock.patch.object(listing, "COUNT_EXACTLY", 120):
            whole = viewer.get(LIVE).context["cl"]

    assert exact.count_words == whole.count_words == "150 jobs"


@pytest.mark.parametrize(
    ("planned", "words"),
    [
        (1, "more than 120 jobs"),
        (0, "more than 120 jobs"),
        (103_456, "more than 120 jobs, about 100,000 by the planner's estimate"),
    ],
)
def test_t38_a_count_is_never_wrong_by_more_than_it_says(viewer: Client, planned: int, words: str) -> None:
    for _ in range(150):
        make_job()
    real = listing._count

    def count(listed: Any, text: str) -> int | None:
        """Counting all takes too long; counting a few does not."""
        return real(listed, text) if "LIMIT" in text else None

    with (
        mock.patch.object(listing, "COUNT_LIMIT", timedelta(seconds=30)),
        mock.patch.object(listing, "COUNT_EXACTLY", 120),
        mock.patch.object(listing, "_count", count),
        mock.patch.object(listing, "_estimate", return_value=planned),
    ):
        assert viewer.get(LIVE).context["cl"].count_words == words
        assert viewer.get(LIVE, {"queue": "default"}).context["cl"].count_words == "more than 120 jobs"


def test_t38_right_after_an_insert_of_many_the_count_is_exact(viewer: Client) -> None:
    with mock.patch.object(listing, "COUNT_LIMIT", timedelta(seconds=30)), connection.cursor() as cursor:
        cursor.execute("ANALYZE djqueue_job")
        cursor.execute("INSERT INTO djqueue_job (task, ready_at) SELECT 't', now() FROM generate_series(1, 20000)")
        assert viewer.get(LIVE).context["cl"].count_words == "20,000 jobs"


@pytest.mark.parametrize("url", [LIVE, FINISHED])
def test_t42_a_list_says_what_failed_and_with_which_arguments(viewer: Client, url: str) -> None:
    make = make_job if url == LIVE else make_finished
    errors = [
        {"exception": "a.Old", "message": "old"},
        {"exception": "shop.errors.Declined", "message": "No <money>\nmore"},
    ]
    make(args=[17, "x"], kwargs={"order": 3}, errors=errors)
    make(args=["<b>" + "y" * 200_000], errors=[{"message": "z" * 200_000}])
    make(args={"zlib": "eJw="}, errors=[])
    make(args=[], errors={"no": "list"})

    html = viewer.get(url).content.decode()

    assert "[17, &quot;x&quot;] {&quot;order&quot;: 3}" in html
    assert "Declined: No &lt;money&gt;<" in html
    assert "compressed arguments" in html
    assert "<b>yyy" not in html
    assert len(html) < 100_000


def test_t42_a_job_elsewhere_says_so_too(viewer: Client, behind: Behind) -> None:
    behind.finish(JobState.DISCARDED, {"error": '{"exception": "a.Boom", "message": "It broke"}'}, args="[17]")

    html = viewer.get(FINISHED, {"backend": "other"}).content.decode()

    assert "[17]" in html
    assert "Boom: It broke" in html


@pytest.mark.parametrize("term", ["send", "SEND_rec", "shop.tasks.send", "tasks.send_receipt", "receipt"])
def test_t42_a_search_finds_short_names(viewer: Client, term: str) -> None:
    wanted, _other = make_job(task="shop.tasks.send_receipt"), make_job(task="shop.tasks.charge")

    assert ids(viewer, LIVE, q=term) == [wanted.pk]


def test_t42_a_wildcard_is_no_wildcard(viewer: Client) -> None:
    make_job(task="shop.tasks.send")

    assert ids(viewer, LIVE, q="s%d") == ids(viewer, LIVE, q="s_nd") == []


@pytest.mark.parametrize("url", [LIVE, FINISHED])
def test_t42_the_oldest_jobs_are_a_click_away_and_other_orders_are_declined_in_words(viewer: Client, url: str) -> None:
    made = [(make_job if url == LIVE else make_finished)().pk for _ in range(130)]

    page = viewer.get(url)
    oldest = viewer.get(url + page.context["cl"].oldest_url)

    assert "No other order is indexed" in page.content.decode()
    assert sorted(row.shown.number for row in oldest.context["cl"].result_list) == made[:100]


@pytest.mark.parametrize("url", [LIVE, FINISHED])
def test_a_search_that_takes_too_long_shows_the_newest_and_can_go_on(
    viewer: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = make_finished if url == FINISHED else make_job
    wanted = [make(task="rare.task").pk for _ in range(2)]
    for _ in range(30):
        make()
    wanted.append(make(task="rare.task").pk)
    monkeypatch.setattr(listing, "WINDOW", 20)
    # The first read of each page is cut off; those of the window and of the beginnings are not.
    cuts = cycle([True, False, False, False])

    @contextmanager
    def time_limit(alias: str, limit: timedelta) -> Iterator[None]:
        if next(cuts):
            raise ReadTooSlow
        yield

    monkeypatch.setattr(listing, "time_limit", time_limit)

    first = viewer.get(url, {"q": "rare"})
    page = first.context["cl"]
    rest = viewer.get(url + page.older_url).context["cl"]

    assert "took too long" in page.notice
    assert "took too long" in first.content.decode()
    assert [row.shown.number for row in page.result_list] == [wanted[2]]
    assert sorted(row.shown.number for row in rest.result_list) == wanted[:2]
    assert not rest.older_url


def test_nothing_of_a_page_is_styled_or_scripted_inline(viewer: Client) -> None:
    job = make_job()
    make_finished()

    for url in (LIVE, FINISHED, "/admin/djqueue/queue/", "/admin/djqueue/worker/", f"{LIVE}{job.pk}/change/"):
        html = viewer.get(url).content.decode()
        assert "djqueue/admin.css" in html
        assert " style=" not in html
        assert "<style" not in html
        assert " onclick=" not in html
        assert not re.search(r"<script(?![^>]*\bsrc=)", html)


HUNDRED_THOUSAND = """
    INSERT INTO djqueue_job (state, queue, task, ready_at, inserted_at)
    SELECT 'available', 'q' || i % 3, 'shop.tasks.send', now(), now() FROM generate_series(1, 100000) AS i;
    INSERT INTO djqueue_finishedjob (id, state, queue, task, finished_at)
    SELECT i, 'completed', 'q' || i % 3, 'shop.tasks.send', now() - i * interval '1 s' FROM generate_series(1, 100000) AS i;
    ANALYZE djqueue_job;
    ANALYZE djqueue_finishedjob;
"""


def test_lists_of_a_hundred_thousand_jobs_are_read_along_an_index(viewer: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(HUNDRED_THOUSAND)
    newest = Job.objects.order_by("-pk").values_list("pk", flat=True)[0]
    middle = FinishedJob.objects.get(pk=50_000)
    pages = {
        LIVE: "djqueue_job_pkey",
        f"{LIVE}?state=available": "djqueue_job_pkey",
        f"{LIVE}?after={newest - 50_000}": "djqueue_job_pkey",
        f"{LIVE}?before={newest - 50_000}": "djqueue_job_pkey",
        f"{LIVE}?state=retryable": "djqueue_job_stage",
        FINISHED: "djqueue_finishedjob_finished",
        f"{FINISHED}?state=completed&queue=q1": "djqueue_finishedjob_finished",
        f"{FINISHED}?within=hour": "djqueue_finishedjob_finished",
    }

    for url, index in pages.items():
        assert index in _plan(viewer, url), url
    cl = viewer.get(FINISHED, {"after": f"{middle.finished_at.isoformat()}_{middle.pk}"}).context["cl"]  # type: ignore[union-attr]
    assert [row.shown.number for row in cl.result_list] == list(range(50_001, 50_101))
    assert viewer.get(LIVE).context["cl"].count_words in (
        "100,000 jobs",
        "more than 10,000 jobs, about 100,000 by the planner's estimate",
    )
    assert "Seq Scan" not in _plan(
        viewer, f"{FINISHED}?after={middle.finished_at:%Y-%m-%dT%H:%M:%S.%f%%2B00:00}_{middle.pk}"
    )


def test_the_choices_of_queues_cost_one_index_descent_each(viewer: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(HUNDRED_THOUSAND)

    with CaptureQueriesContext(connection) as queries:
        html = viewer.get(LIVE).content.decode()

    [statement] = [query["sql"] for query in queries if "RECURSIVE" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) {statement}")
        plan = "\n".join(row for (row,) in cursor.fetchall())
    assert "?queue=q2" in html
    assert "Seq Scan on djqueue_job" not in plan
    assert "djqueue_job_fetch" in plan


def _plan(client: Client, url: str) -> str:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).status_code == 200, url
    [statement] = [query["sql"] for query in queries if "LIMIT 101" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        return "\n".join(row for (row,) in cursor.fetchall())
