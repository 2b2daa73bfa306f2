"""Tasks for tests. Those that leave a trace write it into ``calls``, which is this process's only."""

from __future__ import annotations

import asyncio
from typing import Any

from djqueue import Cancel, Discard, Retry, Snooze, task

calls: list[Any] = []


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
def noop(*args: Any, **kwargs: Any) -> None:
    calls.append((args, kwargs))


@task(queue_name="mail", priority=10, max_attempts=5, backoff=[5, 60])
def send_mail(to: str) -> str:
    return f"sent to {to}"


@task
async def add_async(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b


@task(takes_context=True)
def tell_attempt(context: Any, *args: Any) -> dict[str, Any]:
    return {
        "id": context.task_result.id,
        "attempt": context.attempt,
        "max_attempts": context.job.max_attempts,
    }


@task(takes_context=True)
async def tell_attempt_async(context: Any) -> int:
    return context.attempt  # type: ignore[no-any-return]


@task(max_attempts=3, backoff=0)
def fail(message: str = "no") -> None:
    raise ValueError(message)


@task(takes_context=True, max_attempts=5, backoff=0)
def fail_until(context: Any, attempt: int) -> int:
    if context.attempt < attempt:
        raise ValueError(f"attempt {context.attempt} of {attempt}")
    return context.attempt  # type: ignore[no-any-return]


@task
def return_nonsense() -> object:
    return object()


@task(takes_context=True)
def retry_later(context: Any, delay: float = 0) -> None:
    if context.attempt == 1:
        raise Retry(delay)


@task
def snooze(delay: float = 3600) -> None:
    raise Snooze(delay)


@task
def cancel() -> None:
    raise Cancel("It is not wanted any more.")


@task
def discard() -> None:
    raise Discard("It can never work.")


@task(aliases=["tests.app.tasks.greet_formerly"])
def greet(name: str) -> str:
    return f"Hello, {name}!"
