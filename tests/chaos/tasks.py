"""Jobs of every kind, each of which notes its start and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from django.db import connection

from djqueue import Cancel, Discard, Retry, Snooze, task
from tests.chaos.hostile import CAN_COMMIT_TOGETHER
from tests.chaos.noting import ledger, noted


@task(takes_context=True)
def quick(context: Any) -> None:
    with noted(context):
        pass


@task(takes_context=True)
async def aquick(context: Any) -> None:
    with noted(context):
        pass


@task(takes_context=True)
def nap(context: Any, seconds: float) -> float:
    with noted(context):
        time.sleep(seconds)
        return seconds


@task(takes_context=True)
async def anap(context: Any, seconds: float) -> float:
    with noted(context):
        await asyncio.sleep(seconds)
        return seconds


@task(takes_context=True, backoff=0.2)
def flaky(context: Any, failures: int) -> None:
    """Fail that many times. Attempts that a kill has spent count, too."""
    with noted(context):
        if context.attempt <= failures:
            raise ValueError("not yet")


@task(takes_context=True, max_attempts=3, backoff=0)
async def hopeless(context: Any) -> None:
    with noted(context):
        raise ValueError("never")


@task(takes_context=True)
def retry(context: Any) -> None:
    with noted(context):
        if context.attempt == 1:
            raise Retry(delay=0.5)


@task(takes_context=True)
async def snooze(context: Any, times: int) -> None:
    with noted(context):
        if context.job.meta.get("snoozed", 0) < times:
            raise Snooze(0.3)


@task(takes_context=True)
def cancel(context: Any) -> None:
    with noted(context):
        raise Cancel("not needed")


@task(takes_context=True)
def discard(context: Any) -> None:
    with noted(context):
        raise Discard("hopeless")


@task(takes_context=True, max_attempts=3)
def poison(context: Any, deaths: int) -> None:
    """Kill the worker at that many attempts."""
    with noted(context):
        if context.attempt <= deaths:
            ledger().note("kill", pids=[os.getpid()], by="poison")
            os.kill(os.getpid(), signal.SIGKILL)


@task(takes_context=True, transactional=CAN_COMMIT_TOGETHER, backoff=0)
def write(context: Any, seconds: float, fail: bool) -> None:
    """Write a row that must be there once in the end, however often this runs."""
    with noted(context):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO chaos_effect (job) VALUES (%s)", [context.job.id])
        time.sleep(seconds)
        if fail and context.attempt == 1:
            raise ValueError("after writing")
