from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client

from djqueue import stores as entries
from djqueue.engines.protocol import Engine
from djqueue.jobs.records import Ack, ClaimedJob, NewJob, WorkerInfo
from djqueue.jobs.states import JobState
from djqueue.models import FinishedJob, Job, Worker
from tests import stores
from tests.roles import Roles

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


@dataclass
class Behind:
    """A backend whose jobs the admin knows from its engine only."""

    engine: Engine
    worker: Roles
    me: UUID

    def add(self, count: int = 1, task: str = "shop.tasks.send", **values: Any) -> int:
        """Store jobs and return the id of the last."""
        return self.engine.insert([NewJob(task, **values)] * count)[-1].id

    def fetch(self, queue: str = "default", limit: int = 1) -> list[ClaimedJob]:
        return self.worker.fetch(queue, limit, self.me)

    def finish(self, state: JobState = JobState.COMPLETED, outcome: dict[str, Any] | None = None, **values: Any) -> int:
        """Store a job in a queue of its own and give it an outcome."""
        id = self.add(**{"queue": "ended", **values})
        [job] = self.fetch(values.get("queue", "ended"))
        assert job.id == id
        assert self.worker.ack([Ack(id, job.claim, state, **(outcome or {}))]).accepted == {id}
        return id


def backend_of(kind: str) -> dict[str, Any]:
    if kind == "postgres":
        return {"BACKEND": "djqueue.backends.PostgresBackend", "QUEUES": []}
    url = stores.valkey()
    stores.empty(url)
    return {"BACKEND": "djqueue.backends.RedisBackend", "QUEUES": [], "OPTIONS": {"url": url}}


# PostgreSQL has connections of its own for workers, which see only what is committed.
_COMMITS = pytest.param("postgres", marks=pytest.mark.django_db(transaction=True))
_KINDS = [_COMMITS, pytest.param("valkey", marks=pytest.mark.django_db)]


@pytest.fixture(params=_KINDS)
def behind(
    request: pytest.FixtureRequest, db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Behind]:
    """A second backend, "other"."""
    with _behind(request.param, "other", settings, monkeypatch) as behind:
        yield behind


@pytest.fixture(params=_KINDS)
def home(request: pytest.FixtureRequest, db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behind]:
    """The backend "default", where tasks are at home, beside one with tables."""
    settings.TASKS = {"tables": settings.TASKS["default"]}
    with _behind(request.param, "default", settings, monkeypatch) as behind:
        yield behind


@contextmanager
def _behind(kind: str, alias: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behind]:
    settings.TASKS = {**settings.TASKS, alias: backend_of(kind)}
    monkeypatch.setattr(
        "djqueue.admin.sources.is_in_tables",
        lambda store: isinstance(store, entries.PostgresStore) and store.alias != alias,
    )
    engine = entries.store(alias).engine
    with Roles(engine) as worker:
        me = uuid4()
        queues = {"default": 2, "ended": None}
        worker.register([WorkerInfo(id=me, name="web-3:1", hostname="web-3", pid=17, queues=queues, concurrency=4)])
        yield Behind(engine, worker, me)


def text(response: Any) -> str:
    """What a page says."""
    html = response.content.decode()
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html[html.index('id="content"') :])).split())


def told(response: Any) -> list[str]:
    """The messages that a page leaves."""
    return [str(message) for message in get_messages(response.wsgi_request)]
