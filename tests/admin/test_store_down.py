"""A backend whose server does not answer, or does not take what it is given."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.test import Client

from djqueue.contrib.embedded import process
from djqueue.engines.redis import RedisEngine
from djqueue.exceptions import EngineRefused, EngineUnavailable
from tests import stores
from tests.admin.conftest import Login, make_job, text

PAGES = [
    "job/?backend=gone",
    "job/?backend=gone&q=17",
    "job/gone_2F17/change/",
    "job/gone_2F17/history/",
    "finishedjob/?backend=gone",
    "queue/?backend=gone",
    "queue/gone_2Fmail/change/",
    "worker/?backend=gone",
    "worker/gone_2F17/change/",
    "cronentry/?backend=gone",
    "cronentry/gone_2F17/change/",
]
POSTS: list[tuple[str, dict[str, Any]]] = [
    ("job/?backend=gone", {"action": "cancel_jobs", "index": "0", "_selected_action": "gone/17"}),
    ("job/?backend=gone", {"action": "cancel_jobs", "index": "0", "_selected_action": "gone/17", "confirmed": "yes"}),
    ("queue/?backend=gone", {"act": "pause", "queue": "mail"}),
    ("queue/?backend=gone", {"act": "pause", "queue": "mail", "confirmed": "yes"}),
    ("cronentry/gone_2F17/act/pause/", {}),
    ("cronentry/gone_2F17/delete/", {"post": "yes"}),
]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def gone(settings: Any) -> None:
    url = f"redis://:secret@127.0.0.1:{process.free_port()}/0"
    settings.TASKS = {
        **settings.TASKS,
        "gone": {"BACKEND": "djqueue.backends.RedisBackend", "QUEUES": [], "OPTIONS": {"url": url}},
    }


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_so_in_a_sentence(admin_client: Client, page: str) -> None:
    response = admin_client.get(f"/admin/djqueue/{page}")

    assert response.status_code == 503
    said = text(response)
    assert "The backend gone does not respond." in said
    assert "127.0.0.1" in said
    assert "secret" not in said
    assert "default" in said, "there is no way to the others"


@pytest.mark.parametrize(("page", "values"), POSTS)
def test_so_does_what_was_to_be_done(admin_client: Client, page: str, values: dict[str, Any]) -> None:
    response = admin_client.post(f"/admin/djqueue/{page}", values)

    assert response.status_code == 503
    assert "The backend gone does not respond." in text(response)


@pytest.mark.parametrize("page", PAGES)
def test_who_may_not_look_does_not_learn_where_the_server_is(login: Login, page: str) -> None:
    response = login().get(f"/admin/djqueue/{page}")

    assert response.status_code == 403
    assert b"127.0.0.1" not in response.content


def test_the_others_go_on(admin_client: Client) -> None:
    job = make_job()

    for page in ("", "djqueue/", "djqueue/job/", "djqueue/queue/", f"djqueue/job/{job.pk}/change/"):
        assert admin_client.get(f"/admin/{page}").status_code == 200


def test_a_server_that_goes_while_it_is_asked_is_told_of_too(admin_client: Client, settings: Any) -> None:
    url = stores.valkey()
    stores.empty(url)
    settings.TASKS = {"gone": {"BACKEND": "djqueue.backends.RedisBackend", "QUEUES": [], "OPTIONS": {"url": url}}}

    with mock.patch.object(RedisEngine, "counts", side_effect=EngineUnavailable("It hung up.")):
        assert "It hung up." in text(admin_client.get("/admin/djqueue/queue/?backend=gone"))
    with mock.patch.object(RedisEngine, "pause", side_effect=EngineRefused("It is full.")):
        values = {"act": "pause", "queue": "mail", "confirmed": "yes"}
        assert "It is full." in text(admin_client.post("/admin/djqueue/queue/?backend=gone", values))
