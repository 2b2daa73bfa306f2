"""Rows that somebody edited so that nobody can read them: each is parked alone, and is shown."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import msgpack
import pytest
import redis
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client

from djqueue import api, crontab
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, WorkerInfo
from djqueue.jobs.states import JobState
from djqueue.models import Job
from djqueue.tasks.task import Task
from tests import settings as test_settings
from tests import stores
from tests.backlog import engine, live, stored
from tests.ledger import tasks
from tests.processes import drain
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True)

TIMES = ["infinity", "-infinity", "20000-01-01 00:00+00", "0044-03-15 00:00+00 BC"]
COLUMNS = ["scheduled_at", "expires_at", "ready_at", "inserted_at", "attempted_at", "started_at"]


def edit(id: int, **columns: str) -> None:
    with connection.cursor() as cursor:
        for column, value in columns.items():
            cursor.execute(f"UPDATE djqueue_job SET {column} = %s WHERE id = %s", [value, id])


def browser() -> Client:
    user = User.objects.filter(username="admin").first() or User.objects.create_superuser("admin")
    client = Client()
    client.force_login(user)
    return client


def health() -> str:
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("queuehealth", stdout=out, no_color=True)
    return out.getvalue()


def test_t62_times_beyond_those_of_python_keep_nobody() -> None:
    odd = {(column, time): tasks.record.enqueue(f"{column} {time}") for column in COLUMNS for time in TIMES}
    for (column, time), result in odd.items():
        edit(int(result.id), **{column: time})
    good = tasks.record.using(priority=-1).enqueue("good")

    drain()

    assert stored(good).state is JobState.COMPLETED
    for (column, time), result in odd.items():
        has_expired = column == "expires_at" and time.startswith(("-", "0"))
        assert stored(result).state is (JobState.CANCELLED if has_expired else JobState.COMPLETED), (column, time)


@pytest.mark.parametrize("time", TIMES)
def test_t62_times_beyond_those_of_python_are_shown_and_acted_upon(time: str) -> None:
    ids = [int(tasks.record.enqueue(column).id) for column in COLUMNS]
    for id, column in zip(ids, COLUMNS, strict=True):
        edit(id, **{column: time})
    client = browser()

    for url in ("/admin/djqueue/job/", *(f"/admin/djqueue/job/{id}/change/" for id in ids), "/admin/djqueue/queue/"):
        assert client.get(url).status_code == 200, url
    call_command("queuestats", stdout=StringIO())
    health()
    assert len(engine().newest(JobFilter(), limit=50).jobs) == len(ids)
    report = api.cancel(JobFilter(queue="default"))

    assert sum(report.outcomes.values()) == len(ids)
    assert live() == 0
    for id in ids:
        assert client.get(f"/admin/djqueue/finishedjob/{id}/change/").status_code == 200
    assert client.get("/admin/djqueue/finishedjob/").status_code == 200


@pytest.mark.parametrize("time", TIMES)
def test_t62_a_delayed_job_of_such_a_time_keeps_no_other_from_being_staged(time: str) -> None:
    odd, good = (tasks.record.using(run_after=timedelta(hours=1)).enqueue(name) for name in ("odd", "good"))
    edit(int(odd.id), scheduled_at=time)
    edit(int(good.id), scheduled_at="2020-01-01 00:00+00")

    with Roles(engine()) as worker:
        staged = worker.stage()

    assert stored(good).state is JobState.AVAILABLE
    assert stored(odd).state is (JobState.AVAILABLE if time.startswith(("-", "0")) else JobState.SCHEDULED)
    assert staged.next_in is None or staged.next_in > 3600


@pytest.mark.parametrize("time", TIMES)
def test_t62_rows_of_workers_queues_and_the_crontab_are_shown_whatever_their_times(time: str) -> None:
    crontab.add("odd", tasks.noop, "* * * * *")
    engine().pause("odd")
    with Roles(engine()) as own:
        own.register([WorkerInfo(id=uuid4(), name="odd", hostname="here", pid=1, queues={}, concurrency=1)])
        with connection.cursor() as cursor:
            cursor.execute("UPDATE djqueue_worker SET beat_at = %s, started_at = %s", [time, time])
            cursor.execute("UPDATE djqueue_queue SET paused_at = %s", [time])
            cursor.execute("UPDATE djqueue_cronentry SET next_at = %s, start_at = %s, created_at = %s", [time] * 3)
        client = browser()

        for name in ("worker", "queue", "cronentry"):
            assert client.get(f"/admin/djqueue/{name}/").status_code == 200, name
        call_command("queuestats", stdout=StringIO())
        health()
        assert len(engine().workers()) == 1
        with engine().open_cron() as scheduling:
            scheduling.due()


BAD_ARGUMENTS = [("args", "5"), ("args", '{"a": 1}'), ("kwargs", "[1]"), ("args", '{"zlib": "x"}'), ("kwargs", "null")]


def test_t62_arguments_of_another_shape_are_parked_with_a_reason() -> None:
    odd = [tasks.record.enqueue("odd") for _ in BAD_ARGUMENTS]
    for result, (column, value) in zip(odd, BAD_ARGUMENTS, strict=True):
        edit(int(result.id), **{column: value})
    good = tasks.record.enqueue("good")
    client = browser()

    drain()

    assert stored(good).state is JobState.COMPLETED
    said = health()
    for result in odd:
        job = stored(result)
        assert (job.state, job.attempt) == (JobState.SCHEDULED, 0)
        assert "somebody edited the row" in job.meta["parked"].lower()
        assert f"Job {result.id} (tests.ledger.tasks.record) is parked: " in said
        assert client.get(f"/admin/djqueue/job/{result.id}/change/").status_code == 200
        edit(int(result.id), args='["repaired"]', kwargs="{}", scheduled_at="2020-01-01 00:00+00")
    drain()
    assert {stored(result).state for result in odd} == {JobState.COMPLETED}


def test_t62_other_columns_of_another_shape_keep_nobody() -> None:
    values = [("meta", "5"), ("meta", "[]"), ("errors", "5"), ("errors", "[7]")]
    odd = [tasks.record.enqueue("odd") for _ in values]
    for result, (column, value) in zip(odd, values, strict=True):
        edit(int(result.id), **{column: value})
    good = tasks.record.enqueue("good")
    client = browser()
    assert client.get("/admin/djqueue/job/").status_code == 200
    for result in odd:
        assert client.get(f"/admin/djqueue/job/{result.id}/change/").status_code == 200

    drain()

    assert stored(good).state is JobState.COMPLETED
    for result in odd:
        assert stored(result).state.is_final
        assert client.get(f"/admin/djqueue/finishedjob/{result.id}/change/").status_code == 200
    assert not Job.objects.exists()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Any:
    """The Valkey server, on which the default backend is here and in workers."""
    stores.empty(stores.valkey())
    monkeypatch.setenv("DJQUEUE_STORE", "redis")
    settings.TASKS = test_settings.tasks("redis")
    with redis.Redis.from_url(stores.valkey()) as client:
        yield client


GARBAGE = [b"", b"x", b"garbage", b"\xc1\xc1", b"\x91\xa1a", b"\x97\xa1a\xa1b\xa1c\xc0\xc0\xc0\xc0", b"\xdc", b"[]"]


def _with_bad_json(payload: bytes) -> bytes:
    *values, (_, kwargs) = msgpack.unpackb(payload)
    return msgpack.packb([*values, ["no JSON", kwargs]])


@pytest.mark.parametrize("task", [tasks.fail_as_unreadable, tasks.fail_as_unreadable_async])
def test_a_task_that_raises_unreadable_job_fails_like_any_other(task: Task) -> None:
    result = task.enqueue()

    drain()

    job = stored(result)
    assert (job.state, job.attempt) == (JobState.DISCARDED, 2)
    assert [error["message"] for error in job.errors] == ["of another job"] * 2


def test_t62_values_that_cannot_be_read_are_parked_and_the_queue_goes_on(server: Any) -> None:
    payloads = [int(tasks.record.enqueue("payload").id) for _ in GARBAGE]
    runs = [int(tasks.record.enqueue("run").id) for _ in GARBAGE]
    for ids, kind in ((payloads, "job"), (runs, "run")):
        for id, value in zip(ids, GARBAGE, strict=True):
            server.set(f"{{djqueue}}:{kind}:{id}", value)
    arguments = int(tasks.record.enqueue("arguments").id)
    server.set(f"{{djqueue}}:job:{arguments}", _with_bad_json(server.get(f"{{djqueue}}:job:{arguments}")))
    good = tasks.record.using(priority=-1).enqueue("good")
    client = browser()
    assert "unreadable" in client.get("/admin/djqueue/job/").content.decode()
    health()
    call_command("queuestats", stdout=StringIO())

    drain()

    assert stored(good).state is JobState.COMPLETED
    said = health()
    assert "is parked: " in said
    for id in payloads + runs:
        job = engine().get(id)
        assert job is not None
        assert job.state is JobState.DISCARDED, id
        assert (
            "unreadable"
            in client.get(f"/admin/djqueue/finishedjob/default%2F{id}/change/", follow=True).content.decode().lower()
        )
    assert engine().get(arguments).state is JobState.SCHEDULED  # type: ignore[union-attr]
    assert client.get("/admin/djqueue/finishedjob/").status_code == 200
    assert server.hlen("{djqueue}:parked") == len(payloads + runs) + 1
    assert server.zcard("{djqueue}:ready:default") == server.hlen("{djqueue}:executing") == 0
    # What lost only its history can be run again.
    assert all(controlled.is_done for controlled in api.retry(runs))
    drain()
    assert {engine().get(id).state for id in runs} == {JobState.COMPLETED}  # type: ignore[union-attr]
    report = api.delete(JobFilter(states=(JobState.DISCARDED,)))
    assert sum(report.outcomes.values()) == len(payloads)
    assert [engine().get(id) for id in payloads] == [None] * len(payloads)
    assert server.hlen("{djqueue}:parked") == 1


@pytest.mark.parametrize("verb", ["cancel", "discard", "delete"])
def test_t62_bulk_actions_go_on_past_what_cannot_be_read(server: Any, verb: str) -> None:
    ids = [int(tasks.record.using(run_after=timedelta(hours=number % 2)).enqueue("one").id) for number in range(6)]
    for kind, id in zip(("job", "run", "job", "run"), ids, strict=False):
        server.set(f"{{djqueue}}:{kind}:{id}", b"garbage")

    getattr(api, verb)(JobFilter(states=(JobState.AVAILABLE, JobState.SCHEDULED)))

    assert server.zcard("{djqueue}:ready:default") == server.zcard("{djqueue}:due") == 0
    assert {job.state for id in ids[4:] if (job := engine().get(id))} <= {JobState.CANCELLED, JobState.DISCARDED}


@pytest.mark.parametrize("kind", ["job", "run"])
def test_t62_a_delayed_job_that_cannot_be_read_keeps_no_other_from_being_staged(server: Any, kind: str) -> None:
    odd, good = (int(tasks.record.using(run_after=timedelta(hours=1)).enqueue(name).id) for name in ("odd", "good"))
    server.set(f"{{djqueue}}:{kind}:{odd}", b"garbage")

    with Roles(engine()) as worker:
        worker.stage(now=engine().now() + timedelta(hours=2))

    assert engine().get(good).state is JobState.AVAILABLE  # type: ignore[union-attr]
    assert engine().get(odd).state is JobState.DISCARDED  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["job", "run"])
def test_t62_a_job_that_runs_at_most_once_and_cannot_be_read_is_parked(
    server: Any, kind: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("DJQUEUE_ONCE", "1")
    odd, good = (int(tasks.record.using(queue_name="once").enqueue(name).id) for name in ("odd", "good"))
    server.set(f"{{djqueue}}:{kind}:{odd}", b"garbage")

    drain("--queues", "once")

    assert engine().get(good).state is JobState.COMPLETED  # type: ignore[union-attr]
    assert engine().get(odd).state is JobState.DISCARDED  # type: ignore[union-attr]


@pytest.mark.parametrize("value", GARBAGE)
def test_t62_a_run_that_is_spoiled_while_its_job_executes_is_written_anew(server: Any, value: bytes) -> None:
    id = int(tasks.record.enqueue("one").id)
    me = uuid4()
    with Roles(engine()) as worker:
        worker.register([WorkerInfo(id=me, name="test", hostname="here", pid=1, queues={}, concurrency=1)])
        [job] = worker.fetch("default", 1, me)
        worker.ack([Ack(id, job.claim, JobState.RETRYABLE, 1.0, 2.0, error="{}")])
        [job] = worker.fetch("default", 1, me)
        server.set(f"{{djqueue}}:run:{id}", value)

        assert worker.ack([Ack(id, job.claim, JobState.COMPLETED, 1.0, 2.0)]).accepted == {id}

        assert stored_state(id) is JobState.COMPLETED


def stored_state(id: int) -> JobState:
    job = engine().get(id)
    assert job is not None
    return job.state


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("paused", b"mail", b"1"),
        ("paused", b"\xff", b""),
        ("workers", b"x", b"\xff\x00"),
        ("workers", b"5b0c1e9a-8f4d-4c59-9d2e-3f6a7b8c9d0e", msgpack.packb(["a", "b", 1, ["default"], 1])),
        ("finished", b"nothing", 1.0),
        ("due", b"nothing", float("-inf")),
        ("due", b"", 1e300),
    ],
)
def test_entries_written_by_hand_into_redis_hide_no_page_and_fail_no_command(
    key: str, field: bytes, value: Any, server: Any
) -> None:
    tasks.noop.enqueue()
    name = f"{{djqueue}}:{key}"
    if isinstance(value, float):
        server.zadd(name, {field: value})
    else:
        server.hset(name, field, value)

    expect_everything_is_shown()


def test_an_unreadable_job_that_no_worker_has_put_aside_yet_hides_no_page_and_fails_no_command(
    server: Any,
) -> None:
    result = tasks.noop.enqueue()
    server.set(f"{{djqueue}}:job:{result.id}", b"edited")

    expect_everything_is_shown()


@pytest.mark.parametrize("key", ["job", "run"])
def test_a_list_at_the_key_of_a_job_keeps_no_other_job_and_hides_no_page(key: str, server: Any) -> None:
    odd, good = tasks.noop.enqueue(), tasks.noop.enqueue()
    name = f"{{djqueue}}:{key}:{odd.id}"
    server.delete(name)
    server.rpush(name, b"edited")

    expect_everything_is_shown()
    assert browser().get(f"/admin/djqueue/job/{odd.id}/change/", follow=True).status_code == 200
    report = api.discard(JobFilter(queue="default"), by="anna")
    assert report.done == 2
    assert {stored_state(int(result.id)) for result in (odd, good)} == {JobState.DISCARDED}


@pytest.mark.parametrize(("key", "state"), [("job", JobState.DISCARDED), ("run", JobState.COMPLETED)])
def test_a_list_at_the_key_of_a_job_that_a_worker_finds_ends_that_job_alone(
    key: str, state: JobState, server: Any
) -> None:
    odd, good = tasks.noop.enqueue(), tasks.noop.enqueue()
    name = f"{{djqueue}}:{key}:{odd.id}"
    server.delete(name)
    server.rpush(name, b"edited")

    drain()

    assert stored_state(int(good.id)) is JobState.COMPLETED
    assert stored_state(int(odd.id)) is state


def expect_everything_is_shown() -> None:
    client = browser()
    pages = ["job", "finishedjob", "queue", "worker"]
    assert [client.get(f"/admin/djqueue/{page}/").status_code for page in pages] == [200] * 4
    out = StringIO()
    call_command("queuestats", stdout=out)
    assert "default" in out.getvalue()
    assert "No worker is alive" in health()
    assert engine().find(JobFilter(states=(JobState.SCHEDULED, JobState.COMPLETED)), last=2**40) == []
