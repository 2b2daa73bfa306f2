"""What a job takes along when its row moves to the history, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from djqueue.engines.postgres.statements import sql
from djqueue.models import AbstractJob, FinishedJob, Job

pytestmark = pytest.mark.django_db

WORKER = UUID(int=1)
CARRIED = {
    "flow_id": 7, "is_awaited": True, "pending": 2, "limit_key": "mail/tenant 7", "tags": ["a", "b"], "fingerprint": "f",
    "task": "shop.tasks.pay", "queue": "mail", "args": [1], "kwargs": {"a": 1}, "priority": 5, "claim": 3,
    "attempted_by": WORKER, "meta": {"note": "kept"},
}  # fmt: skip
EXECUTING, WAITING, REQUESTED = "executing", "available", "cancel requested"


def run(name: str, **params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql(name), {"now": None, **params})


def store(state: str) -> int:
    request = {"by": "anna", "reason": "", "at": ""} if state == REQUESTED else None
    job = Job(**CARRIED, state=WAITING if state == WAITING else EXECUTING, attempt=1, cancel_request=request)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        [job.ready_at] = cursor.fetchone()
    job.save(force_insert=True)
    return job.pk


def carried(model: type[AbstractJob], id: int) -> dict[str, Any]:
    return model.objects.values(*CARRIED).get(pk=id)


def outcome(id: int, **more: Any) -> dict[str, Any]:
    return {
        "id": [id], "claim": [CARRIED["claim"]], "started_ago": [1000], "finished_ago": [0], "error": [None],
        "is_spent": [True], **more,
    }  # fmt: skip


def control(id: int) -> dict[str, Any]:
    return {"ids": [id], "only": None, "by": "anna", "reason": "Stop.", "is_settling": True}


ENDS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "ack_flow": (EXECUTING, lambda id: outcome(id, state=["completed"], result=["1"], as_events=True)),
    "ack_cancelled": (REQUESTED, outcome),
    "cancel": (WAITING, control),
    "discard": (WAITING, control),
    "rescue": (
        REQUESTED,
        lambda id: {
            "workers": [WORKER], "ran_id": None, "ran_claim": None, "as_noted": False, "kept_id": [], "kept_claim": [],
            "reason": "Lost.", "limit": 10,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_a_finished_job_keeps_all_that_does_not_depend_on_its_end(name):
    state, params = ENDS[name]
    id = store(state)

    run(name, **params(id))

    assert not Job.objects.filter(pk=id).exists()
    assert carried(FinishedJob, id) == CARRIED


def test_a_retried_job_gets_it_back():
    """A job of a workflow is retried by other statements: those that it has stopped come back with it."""
    id = store(WAITING)
    run("cancel", **control(id))
    of_no_flow = {"flow_id": None, "is_awaited": None, "pending": None}
    FinishedJob.objects.filter(pk=id).update(**of_no_flow)

    run("retry", **control(id))

    assert not FinishedJob.objects.filter(pk=id).exists()
    assert carried(Job, id) == {**CARRIED, **of_no_flow}


def test_a_plain_job_has_none_of_the_columns_that_only_some_use():
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO djqueue_job (task, ready_at) VALUES ('shop.tasks.pay', now()) RETURNING id")
        [id] = cursor.fetchone()

    rare = ["flow_id", "is_awaited", "pending", "limit_key", "tags", "fingerprint"]
    assert set(Job.objects.values_list(*rare).get(pk=id)) == {None}


@pytest.mark.parametrize("model", [Job, FinishedJob])
def test_a_null_costs_no_byte_in_the_header_of_a_row(model):
    # 23 bytes and a bit per column, rounded up to 8: 32 bytes up to 72 columns.
    assert len(model._meta.concrete_fields) <= 72
