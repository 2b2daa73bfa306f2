from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from djqueue.models import FinishedJob, Job, Worker

Login = Callable[..., Client]


@pytest.fixture
def login(db: None) -> Login:
    """Log a staff user in who has the named permissions and no others."""

    def log_in(*codenames: str) -> Client:
        user = User.objects.create_user(f"staff-{uuid4()}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(content_type__app_label="djqueue", codename__in=codenames))
        assert user.user_permissions.count() == len(codenames)
        client = Client()
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def viewer(login: Login) -> Client:
    return login("view_job", "view_finishedjob", "view_queue", "view_worker")


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


def make_job(**values: Any) -> Job:
    values = {"task": "shop.tasks.send", **values}
    if values.get("state", "available") in ("available", "executing"):
        values.setdefault("ready_at", ago(seconds=12))
    return Job.objects.create(**values)


def make_finished(**values: Any) -> FinishedJob:
    if "id" not in values:
        # Both tables share the ids of the live one.
        job = make_job()
        values["id"] = job.pk
        job.delete()
    values = {
        "task": "shop.tasks.send",
        "state": "completed",
        "attempt": 1,
        "finished_at": ago(seconds=5),
        **values,
    }
    return FinishedJob.objects.create(**values)


def make_worker(**values: Any) -> Worker:
    worker_id: UUID = values.pop("id", None) or uuid4()
    values = {
        "name": "web-1:1",
        "hostname": "web-1",
        "pid": 17,
        "concurrency": 4,
        "queues": {"default": None},
        **values,
    }
    return Worker.objects.create(id=worker_id, **values)
