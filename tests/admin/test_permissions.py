from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from djqueue.models import Job, Queue
from tests.admin.conftest import Login, make_finished, make_job, make_worker

MODELS = ("job", "finishedjob", "queue", "worker")
pytestmark = pytest.mark.django_db


def make(model: str) -> str:
    if model == "job":
        return str(make_job().pk)
    if model == "finishedjob":
        return str(make_finished().pk)
    if model == "queue":
        return Queue.objects.create(name="mail").pk
    return str(make_worker().pk)


def url(model: str, page: str, *args: str) -> str:
    return reverse(f"admin:djqueue_{model}_{page}", args=args)


@pytest.mark.parametrize("model", MODELS)
def test_b77_who_may_only_view_can_view(login: Login, model: str) -> None:
    client, pk = login(f"view_{model}"), make(model)

    assert client.get(url(model, "changelist")).status_code == 200
    assert client.get(url(model, "change", pk)).status_code == 200
    assert client.get(url(model, "history", pk)).status_code == 200
    assert client.get(reverse("admin:index")).context["app_list"][0]["models"][0]["view_only"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rights", ["view", "all", "superuser"])
def test_b77_nobody_can_add_change_or_delete(login: Login, admin_client: Client, model: str, rights: str) -> None:
    codenames = [f"{verb}_{model}" for verb in (["view"] if rights == "view" else ["view", "add", "change", "delete"])]
    client = admin_client if rights == "superuser" else login(*codenames)
    pk = make(model)
    values = {
        "task": "os.system",
        "args": '["true"]',
        "name": "x",
        "queue": "default",
        "post": "yes",
        "_save": "Save",
    }

    assert client.get(url(model, "add")).status_code == 403
    assert client.post(url(model, "add"), values).status_code == 403
    assert client.post(url(model, "change", pk), values).status_code == 403
    assert client.get(url(model, "delete", pk)).status_code == 403
    assert client.post(url(model, "delete", pk), values).status_code == 403
    client.post(url(model, "changelist"), {"action": "delete_selected", "_selected_action": pk, "post": "yes"})

    assert client.get(url(model, "change", pk)).status_code == 200
    assert not Job.objects.filter(task="os.system").exists()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("verb", ["", "add", "change", "delete"])
def test_who_may_not_view_sees_nothing(login: Login, model: str, verb: str) -> None:
    client = login(*([f"{verb}_{model}"] if verb else []))
    pk = make(model)

    assert client.get(url(model, "changelist")).status_code == 403
    assert client.get(url(model, "change", pk)).status_code == 403


@pytest.mark.parametrize("model", MODELS)
def test_a_stranger_is_sent_to_the_login(client: Client, model: str) -> None:
    response = client.get(url(model, "changelist"))

    assert response.status_code == 302
    assert "/login/" in response["Location"]


def test_who_may_not_view_finished_jobs_does_not_learn_that_a_job_finished(login: Login) -> None:
    client, job = login("view_job"), make_finished()

    assert client.get(url("job", "change", str(job.pk))).status_code == 403
    assert client.get(url("job", "changelist"), {"q": str(job.pk)}).status_code == 200


def test_who_may_view_finished_jobs_only_can_follow_the_address_of_a_live_one(login: Login) -> None:
    client, job = login("view_finishedjob"), make_finished()

    response = client.get(url("job", "change", str(job.pk)))

    assert response["Location"] == url("finishedjob", "change", str(job.pk))
