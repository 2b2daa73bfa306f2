"""Tasks that attack the event loop on which they run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from djqueue import task

_kept: set[Any] = set()
"""What is left over on purpose must not be collected."""


async def _exit() -> None:
    await asyncio.sleep(0)
    sys.exit(3)


async def _interrupt() -> None:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


async def _gather(child: Callable[[], Any]) -> None:
    await asyncio.gather(child(), asyncio.sleep(0.2))


async def _group(child: Callable[[], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(child())
        await asyncio.sleep(30)


async def _leave_over(child: Callable[[], Any]) -> None:
    _kept.add(asyncio.create_task(child()))


async def _call_back(what: Callable[[], Any]) -> None:
    asyncio.get_running_loop().call_soon(what)
    await asyncio.sleep(0.05)


WAYS: dict[str, tuple[Callable[[], Any], bool]] = {
    "gather": (lambda: _gather(_exit), True),
    "gather interrupt": (lambda: _gather(_interrupt), True),
    "group": (lambda: _group(_exit), True),
    "group interrupt": (lambda: _group(_interrupt), True),
    "left over": (lambda: _leave_over(_exit), False),
    "left over interrupt": (lambda: _leave_over(_interrupt), False),
    "callback": (lambda: _call_back(sys.exit), False),
    "end threads": (lambda: asyncio.get_running_loop().shutdown_default_executor(), False),
    "stop": (lambda: _call_back(asyncio.get_running_loop().stop), False),
}
"""How a loop is attacked, and whether the task that does it hears of the exception."""


@task(max_attempts=1)
async def attack_loop(way: str) -> None:
    await WAYS[way][0]()


@task(max_attempts=2, backoff=0)
async def break_loop() -> None:
    """Make the loop itself fail, in a way that nothing can repair."""
    asyncio.get_running_loop()._selector.close()  # type: ignore[attr-defined]
    await asyncio.sleep(30)
