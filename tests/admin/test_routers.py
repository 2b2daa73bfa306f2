"""Reads go where a router says, writes to the database of the backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connections, router
from django.test import Client
from django.test.utils import CaptureQueriesContext

from djqueue import crontab
from djqueue.models import CronEntry, FinishedJob, Job, Queue
from tests.admin.conftest import Login, make_finished, make_job, told
from tests.crontab import tasks

JOBS, FINISHED, QUEUES = "/admin/djqueue/job/", "/admin/djqueue/finishedjob/", "/admin/djqueue/queue/"
CRON = "/admin/djqueue/cronentry/"
PERMISSIONS = [
    *(f"view_{model}" for model in ("job", "finishedjob", "queue", "worker", "cronentry")),
    *("retry_job", "cancel_job", "discard_job", "delete_job", "delete_finishedjob", "pause_queue"),
    *("add_cronentry", "change_cronentry", "delete_cronentry", "pause_cronentry", "run_cronentry"),
]
pytestmark = pytest.mark.django_db(transaction=True)


class ReplicaRouter:
    """Reads of djqueue's tables go to a replica; about everything else it says nothing."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "replica" if model._meta.app_label == "djqueue" else None


@pytest.fixture
def operator(login: Login) -> Iterator[Client]:
    """Somebody who may do everything, where reads go to a connection on which nothing can be written."""
    client = login(*PERMISSIONS)
    options = {**connections.settings["default"]["OPTIONS"], "options": "-c default_transaction_read_only=on"}
    values = {**connections.settings["default"], "OPTIONS": options, "CONN_MAX_AGE": None}
    connections.settings["replica"] = values
    connection = connections["replica"]
    # Django lets tests open connections of the databases that they name, and of those that it does not know.
    del connections.settings["replica"]
    connection.ensure_connection()
    connections.settings["replica"] = values
    try:
        with mock.patch.object(router, "routers", [ReplicaRouter()]):
            yield client
    finally:
        connection.close()
        del connections["replica"], connections.settings["replica"]


@pytest.mark.parametrize(
    ("verb", "state"),
    [("retry", "scheduled"), ("cancel", "available"), ("discard", "available"), ("delete", "available")],
)
def test_t05_jobs_are_controlled_where_they_are_written(operator: Client, verb: str, state: str) -> None:
    job = make_job(state=state)

    response = operator.post(
        JOBS, {"action": f"{verb}_jobs", "index": "0", "_selected_action": job.pk, "confirmed": "yes", "reason": "why"}
    )

    assert response.status_code == 302, told(response)
    assert not Job.objects.using("default").filter(pk=job.pk, state=state).exists()
    assert LogEntry.objects.count() == 1


def test_t05_all_that_match_are_found_on_the_replica_and_retried_at_home(operator: Client) -> None:
    for _ in range(3):
        make_finished(state="discarded")

    values = {"action": "retry_jobs", "index": "0", "_selected_action": "0", "select_across": "1", "confirmed": "yes"}
    response = operator.post(FINISHED, values)

    assert told(response) == ["3 jobs are available again."]
    assert not FinishedJob.objects.using("default").exists()


def test_t05_queues_are_paused_and_resumed_at_home(operator: Client) -> None:
    for act, is_paused in (("pause", True), ("resume", False)):
        assert operator.post(QUEUES, {"act": act, "queue": "mail", "confirmed": "yes"}).status_code == 302
        assert Queue.objects.using("default").filter(paused_at__isnull=False).exists() == is_paused


def test_t05_the_crontab_is_changed_at_home(operator: Client) -> None:
    form = {
        **{"name": "nightly", "task": tasks.plain.module_path, "args": "[1]", "kwargs": "{}", "timezone": "UTC"},
        **{"expression": "0 3 * * *", "misfire": "latest", "misfire_window_seconds": "3600", "overlap": "allow"},
        "jitter_seconds": "0",
    }

    assert operator.post(f"{CRON}add/", form).status_code == 302
    assert operator.post(f"{CRON}add/", form).status_code == 200, "a second one of the name is a form error"
    [entry] = crontab.entries()
    assert operator.post(f"{CRON}{entry.id}/change/", {**form, "expression": "0 4 * * *"}).status_code == 302
    for verb in ("pause", "resume", "run-now"):
        assert operator.post(f"{CRON}{entry.id}/act/{verb}/", {"reason": "why"}).status_code == 302
    assert crontab.get("nightly").definition.expression == "0 4 * * *"
    assert operator.post(f"{CRON}{entry.id}/delete/", {"post": "yes"}).status_code == 302

    assert not CronEntry.objects.using("default").exists()
    assert Job.objects.using("default").count() == 1
    assert LogEntry.objects.count() == 6


@pytest.mark.parametrize("url", [JOBS, FINISHED, CRON, "/admin/djqueue/worker/"])
def test_t05_lists_read_the_replica(operator: Client, url: str) -> None:
    make_job()
    make_finished()

    with CaptureQueriesContext(connections["replica"]) as read, CaptureQueriesContext(connections["default"]) as home:
        assert operator.get(url).status_code == 200

    assert any("djqueue_" in query["sql"] for query in read.captured_queries)
    assert not any("djqueue_" in query["sql"] for query in home.captured_queries)
