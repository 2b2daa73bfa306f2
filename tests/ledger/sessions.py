"""Tasks that change what a database session holds, or leave it in a state in which no other job should find it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from djqueue import compat, task
from tests.ledger.models import Entry

_CAN_COMMIT_TOGETHER: bool = getattr(compat.task_backends["default"], "supports_transactional", False)


def write(label: str) -> None:
    Entry.objects.create(label=label, pid=os.getpid())


def execute(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone() if cursor.description else None


@task(max_attempts=1)
def run_and_write(before: str, label: str) -> None:
    """Run raw SQL, then write."""
    execute(before)
    write(label)


@task(max_attempts=1)
async def arun_and_write(before: str, label: str) -> None:
    await sync_to_async(run_and_write.func)(before, label)


@task(max_attempts=1)
async def lent_run_and_write(before: str, label: str) -> None:
    await asyncio.to_thread(run_and_write.func, before, label)


@task(max_attempts=1)
def own_loop_run_and_write(before: str, label: str) -> None:
    """Do it by an event loop of the task's own, as code does that knows only asyncio."""
    asyncio.run(sync_to_async(run_and_write.func)(before, label))


@task(max_attempts=1)
def write_in_own_loop(label: str) -> None:
    asyncio.run(Entry.objects.acreate(label=label, pid=os.getpid()))


@task(max_attempts=1)
def write_in_own_loops_and_fork(label: str) -> int | None:
    """Return the exit code of the fork; None: it hung."""
    write_in_own_loop.func(label)
    child = multiprocessing.get_context("fork").Process(target=write_in_own_loop.func, args=(f"{label} fork",))
    child.start()
    child.join(10)
    code = child.exitcode
    child.kill()
    return code


@task(max_attempts=1)
def sleep_in_own_loop(seconds: float) -> None:
    asyncio.run(sync_to_async(time.sleep)(seconds))


@task(max_attempts=1)
def write_durably(label: str) -> None:
    with transaction.atomic(durable=True):
        write(label)


def _open_and_write(label: str, alias: str, *, is_closed: bool) -> None:
    transaction.atomic(using=alias).__enter__()
    Entry.objects.using(alias).create(label=label, pid=os.getpid())
    if is_closed:
        connection.close()


@task(max_attempts=1)
def leave_atomic_open(label: str, is_closed: bool) -> None:
    _open_and_write(label, "default", is_closed=is_closed)


@task(max_attempts=1, transactional=_CAN_COMMIT_TOGETHER)
def leave_atomic_open_in_transaction(label: str) -> None:
    _open_and_write(label, "default", is_closed=False)


@task(max_attempts=1, transactional=_CAN_COMMIT_TOGETHER, takes_context=True)
def delete_own_job(context: Any, label: str) -> None:
    from djqueue.models import Job

    write(label)
    Job.objects.filter(pk=context.task_result.id).delete()


@task(max_attempts=1)
def run(statements: list[str]) -> None:
    for sql in statements:
        execute(sql)


@task(max_attempts=1, transactional=_CAN_COMMIT_TOGETHER)
def write_and_run(label: str, statements: list[str], label_after: str = "") -> None:
    """Write, then run raw SQL in the transaction of the job."""
    write(label)
    for sql in statements:
        execute(sql)
    if label_after:
        write(label_after)


CHANGES = (
    "SET search_path = pg_catalog",
    "SET statement_timeout = '77s'",
    "SELECT pg_advisory_lock(4711)",
    "CREATE TEMP TABLE IF NOT EXISTS dirt (id int)",
    "LISTEN dirt",
    "PREPARE dirt AS SELECT 1",
    "SET TIME ZONE 'Asia/Tokyo'",
    "SET ROLE pg_monitor",
)


@task(max_attempts=1)
def make_dirty() -> None:
    for sql in CHANGES:
        execute(sql)


LOOK = """
SELECT (SELECT json_object_agg(name, setting) FROM pg_settings WHERE source = 'session'),
    current_user::text = session_user::text,
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
    (SELECT count(*) FROM pg_listening_channels()),
    (SELECT count(*) FROM pg_prepared_statements)
"""
"""What a session holds that it did not have when it began."""


def look() -> dict[str, Any]:
    settings, is_self, *counts = execute(LOOK)
    return {"settings": settings or {}, "is_self": is_self, "counts": counts}


@task(max_attempts=1)
def inspect_session() -> dict[str, Any]:
    return look()


@task(max_attempts=1)
def backend() -> tuple[int, int]:
    """Tell which session serves this thread, and which thread it is."""
    [pid] = execute("SELECT pg_backend_pid()")
    return pid, threading.get_ident()


@task(max_attempts=1)
def backend_after(seconds: float) -> int:
    time.sleep(seconds)
    return int(backend.func()[0])


@task(timeout=2, max_attempts=1)
def sleep_after_rollback() -> None:
    """Let the first statement of the job be rolled back, then run one that is far too long."""
    try:
        with transaction.atomic():
            execute("SELECT 1")
            raise ValueError
    except ValueError:
        pass
    execute("SELECT pg_sleep(60)")


@task(timeout=2, max_attempts=1)
def sleep_again_and_again() -> None:
    while True:
        try:
            execute("SELECT pg_sleep(60)")
        except DatabaseError:
            if Entry.objects.filter(label="cancelled").count() == 2:
                raise
            write("cancelled")


@task(timeout=2, max_attempts=1)
async def sleep_in_a_thread(kind: str) -> None:
    if kind == "sensitive":
        await sync_to_async(execute)("SELECT pg_sleep(60)")
    else:
        await asyncio.to_thread(execute, "SELECT pg_sleep(60)")


@task(timeout=600, max_attempts=1, takes_context=True)
def tell_times(context: Any) -> list[str]:
    """Compare what the task is told with Django's own time, which raises where the two are of different kinds."""
    result, now = context.task_result, timezone.now()
    times = [result.enqueued_at, result.started_at, result.last_attempted_at, context.deadline]
    if context.job.scheduled_at is not None:
        times += [context.job.scheduled_at, result.task.run_after]
    assert all(abs(at - now) < timedelta(minutes=15) for at in times), (times, now)
    return [str(timezone.is_aware(at)) for at in times]


@task(timeout=30)
def limited() -> str:
    return str(execute("SHOW statement_timeout")[0])


@task(max_attempts=1)
async def lent(number: int) -> int:
    """Count the entries in a thread of the event loop's default executor."""
    if number % 2:
        return await asyncio.to_thread(Entry.objects.count)
    return await sync_to_async(Entry.objects.count, thread_sensitive=False)()


@task(timeout=20, max_attempts=1)
def limited_writes() -> None:
    """Small statements under a deadline, in transactions and outside of them."""
    for _ in range(3):
        write("limited")
        with transaction.atomic():
            write("limited")


@task(max_attempts=1)
def write_and_nap() -> None:
    write("naps")
    with transaction.atomic():
        write("never committed")
        execute("SELECT pg_sleep(5)")
