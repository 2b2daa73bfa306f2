from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

from asgiref.sync import sync_to_async

from djqueue import Cancel, Discard, Retry, Snooze, task
from tests.ledger.models import Entry


def write(label: str) -> None:
    Entry.objects.create(label=label, pid=os.getpid())


@task
def noop() -> None:
    pass


@task
def record(label: str) -> str:
    write(label)
    return label


@task
async def arecord(label: str) -> str:
    await sync_to_async(write)(label)
    return label


@task
def nap(label: str, seconds: float) -> str:
    write(label)
    time.sleep(seconds)
    return label


@task
async def anap(label: str, seconds: float) -> str:
    await sync_to_async(write)(label)
    await asyncio.sleep(seconds)
    return label


@task(takes_context=True, backoff=0)
def fail_until(context: Any, attempt: int) -> int:
    if context.attempt < attempt:
        raise ValueError(f"attempt {context.attempt} fails")
    return int(context.attempt)


@task(max_attempts=2, backoff=0)
def fail(message: str = "always") -> None:
    raise RuntimeError(message)


@task(max_attempts=3)
def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task(takes_context=True)
def snooze_once(context: Any) -> int:
    if not context.job.meta.get("snoozed"):
        raise Snooze(0.1)
    return int(context.attempt)


@task
def cancel_itself() -> None:
    raise Cancel("not needed any more")


@task
def discard_itself() -> None:
    raise Discard("hopeless")


@task(takes_context=True)
def retry_once(context: Any) -> int:
    if context.attempt == 1:
        raise Retry(delay=0.1)
    return int(context.attempt)


class Unprintable(Exception):
    def __init__(self, one: int, two: int) -> None:
        self.one = one
        self.two = two

    def __str__(self) -> str:
        raise RuntimeError("cannot be printed")


@task(max_attempts=1)
def raise_odd(kind: str) -> None:
    raise _odd(kind)


@task(max_attempts=1)
async def araise_odd(kind: str) -> None:
    raise _odd(kind)


def _odd(kind: str) -> BaseException:
    return {
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
        "Unprintable": Unprintable(1, 2),
        "BaseException": BaseException("bare"),
        "Surrogate": ValueError("\ud800 and \x00"),
    }[kind]


@task(max_attempts=1)
def return_odd(kind: str) -> Any:
    return {"object": object(), "nan": float("nan"), "nul": "\x00", "large": "x" * 300_000, "set": {1}}[kind]


@task
def thread_name() -> str:
    return threading.current_thread().name


@task(takes_context=True)
def describe(context: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    result = context.task_result
    return {
        "attempt": context.attempt,
        "id": result.id,
        "status": str(result.status),
        "args": args,
        "kwargs": kwargs,
        "workers": len(result.worker_ids),
    }


@task
def enqueue_another(more: int) -> None:
    if more:
        enqueue_another.enqueue(more - 1)


@task
def count(number: int) -> int:
    return number


@task
def group_exists(pk: int) -> bool:
    from django.contrib.auth.models import Group

    return Group.objects.filter(pk=pk).exists()
