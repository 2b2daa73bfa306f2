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
