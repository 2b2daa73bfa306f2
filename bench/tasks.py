"""What the benchmarks run."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from djqueue import task


@task
def noop() -> None:
    pass


@task
async def anoop() -> None:
    pass


@task
async def wait(milliseconds: float) -> None:
    await asyncio.sleep(milliseconds / 1000)


@task
def compute(steps: int) -> None:
    for step in range(steps):
        math.sin(step) * math.cos(step)


@task
def greet(user_id: int, email: str, name: str) -> str:
    return f"Hello, {name} <{email}>"


@task
def lateness(sent: float) -> float:
    """Seconds from when the job was sent to when it began; both clocks are this machine's."""
    return time.time() - sent


@task(takes_context=True, max_attempts=3, backoff=0)
def fail_twice(context: Any) -> None:
    if context.attempt < 3:
        raise ValueError("again")


@task(timeout=3600)
def carry(load: str) -> int:
    return len(load)


@task(timeout=3600, takes_context=True)
async def acarry(context: Any, load: str) -> int:
    await asyncio.sleep(0)
    return len(load) + context.attempt


@task(max_attempts=1, timeout=3600)
def fail_at_once(number: int) -> None:
    raise ValueError(f"job {number} fails")


@task(max_attempts=2, backoff=0, takes_context=True)
def fail_once(context: Any) -> None:
    if context.attempt < 2:
        raise ValueError("again")
