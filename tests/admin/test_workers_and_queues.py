from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest
from django.test import Client
from django.urls import reverse

from djqueue.admin import sources
from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.reading import ReadTooSlow
from djqueue.models import Job, Queue
from tests.admin.conftest import Login, ago, make_job, make_worker

WORKERS, QUEUES = "/admin/djqueue/worker/", "/admin/djqueue/queue/"
pytestmark = pytest.mark.django_db


def rows(client: Client, url: str) -> list[str]:
    html = client.get(url).content.decode()
    body = re.search(r"<tbody>(.*?)</tbody>", html, re.DOTALL)
    return (
        [] if body is None else [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in body[1].split("</tr>")[:-1]]
    )


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, "alive"),
        ({"is_draining": True}, "draining"),
        ({"beat_at": ago(seconds=30)}, "silent"),
        ({"beat_at": ago(seconds=30), "is_draining": True}, "silent"),
        ({"died_at": ago(seconds=3)}, "dead"),
    ],
)
def test_a_worker_shows_whether_it_lives(viewer: Client, values: dict[str, Any], state: str) -> None:
    worker = make_worker(name="w", **{"beat_at": ago(seconds=0), **values})

    assert f"djq-badge djq-{state}" in viewer.get(WORKERS).content.decode()
    assert f"djq-badge djq-{state}" in viewer.get(f"{WORKERS}{worker.pk}/change/").content.decode()


def test_a_worker_is_listed_with_what_it_serves(viewer: Client) -> None:
    make_worker(
        name="w:1",
        hostname="h",
        pid=4711,
        queues={"mail": 20, "default": None},
        started_at=ago(hours=3),
        beat_at=ago(seconds=2),
    )

    [row] = rows(viewer, WORKERS)

    assert re.fullmatch(r"w:1 alive h 4711 mail:20, default 4 3 h ago 2\.\d s ago", row)


def test_a_worker_leads_to_what_it_executes(viewer: Client) -> None:
    worker = make_worker()
    job = make_job(state="executing", attempted_by=worker.pk, attempted_at=ago(seconds=1))
    make_job()

    html = viewer.get(f"{WORKERS}{worker.pk}/change/").content.decode()
    [url] = [url.replace("&amp;", "&") for url in re.findall(r'href="(/admin/djqueue/job/\?[^"]*)"', html)]

    assert [row.shown.number for row in viewer.get(url).context["cl"].result_list] == [job.pk]


def test_queues_are_listed_whether_they_have_rules_jobs_or_workers(viewer: Client) -> None:
    Queue.objects.create(name="ruled", paused_at=ago(minutes=5), paused_by="anna", pause_reason="no paper")
    make_job(queue="busy")
    make_job(queue="busy", state="scheduled", scheduled_at=ago(hours=-1))
    make_worker(queues={"served": 3, "busy": None}, concurrency=8)
    make_worker(queues={"served": 3}, is_draining=True)

    listed = {row.split()[0]: row for row in rows(viewer, QUEUES)}

    assert re.fullmatch(r"busy served 1 1 0 0 0 12 s 1 8", listed["busy"])
    assert listed["ruled"] == "ruled paused for 5 min by anna: no paper 0 0 0 0 0 – 0 0"
    assert listed["served"] == "served served 0 0 0 0 0 – 1 3"


def test_a_queue_leads_to_its_jobs_only_for_who_may_see_them(viewer: Client, login: Login) -> None:
    make_job(queue="mail")

    assert "/admin/djqueue/job/?queue=mail&amp;state=available" in viewer.get(QUEUES).content.decode()
    assert "/admin/djqueue/job/" not in login("view_queue").get(QUEUES).content.decode()


def test_queues_are_listed_without_numbers_when_counting_takes_too_long(viewer: Client) -> None:
    make_job(queue="mail")

    with mock.patch.object(PostgresEngine, "counts", side_effect=ReadTooSlow):
        html = viewer.get(QUEUES).content.decode()

    assert "took too long" in html
    assert "mail" in html


def test_a_paused_queue_has_a_page(viewer: Client) -> None:
    Queue.objects.create(name="mail", paused_at=ago(minutes=5), paused_by="anna", pause_reason="no paper")

    html = viewer.get(reverse("admin:djqueue_queue_change", args=["mail"])).content.decode()

    assert "5 min ago" in html
    assert "no paper" in html


def test_the_database_is_the_routers_or_else_that_of_the_backend(settings: Any) -> None:
    assert sources.database(Job) == "default"

    settings.TASKS = {
        "broken": {"BACKEND": "no.such.Backend"},
        "default": {"BACKEND": "djqueue.backends.PostgresBackend", "OPTIONS": {"database": "jobs"}},
    }
    assert sources.database(Job) == "jobs"

    settings.DATABASE_ROUTERS = [mock.Mock(spec=["db_for_read"], db_for_read=lambda model, **hints: "replica")]
    with mock.patch.object(sources.router, "routers", settings.DATABASE_ROUTERS):
        assert sources.database(Job) == "replica"


def test_wrong_options_do_not_keep_anybody_from_looking(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": "djqueue.backends.PostgresBackend", "OPTIONS": {"databse": "x"}}}

    assert sources.database(Job) == "default"
