"""Chancy: the async executor, a queue that is polled as soon as a slot is free, outcomes stored every 50 ms and not every second."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from datetime import UTC, datetime
from typing import Any

import chancy
import protocol

log = logging.getLogger("bench")
log.addHandler(logging.NullHandler())
log.propagate = False


async def bench(*, kind: str, number: int, due: float) -> None:
    await protocol.arun(kind, number, due)


def job(kind: str, number: int, due: float, **options: Any) -> chancy.Job:
    attempts = 3 if kind == "flaky" else 1
    arguments = {"kind": kind, "number": number, "due": due}
    return chancy.Job(func="drive_chancy.bench", queue="bench", kwargs=arguments, max_attempts=attempts, **options)


def app(size: int) -> chancy.Chancy:
    return chancy.Chancy(
        os.environ["DATABASE_URL"], min_connection_pool_size=size, max_connection_pool_size=size, log=log
    )


class ChancyDriver(protocol.Driver):
    is_async = True

    async def setup(self) -> None:
        async with app(1) as here:
            await here.migrate()

    async def open(self) -> None:
        self.app = await app(protocol.CLIENTS).__aenter__()

    async def close(self) -> None:
        await self.app.__aexit__(None, None, None)

    async def add(self, kind: str, number: int, due: float) -> None:
        await self.app.push(job(kind, number, due))

    async def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        jobs = [job(kind, number, 0) for number in numbers]
        async for _ in self.app.push_many(jobs, batch_size=1000):
            pass

    async def add_at(self, kind: str, number: int, due: float) -> None:
        await self.app.push(job(kind, number, due, scheduled_at=datetime.fromtimestamp(due, UTC)))

    async def work(self, options: dict[str, Any]) -> None:
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        queue = chancy.Queue(
            "bench",
            concurrency=options["concurrency"],
            executor=chancy.Chancy.Executor.Async,
            eager_polling=True,
            polling_interval=1,
        )
        async with app(10) as here:
            await here.declare(queue, upsert=True)
            worker = chancy.Worker(here, shutdown_timeout=2, register_signal_handlers=False)
            worker.send_outgoing_interval = 0.05
            async with worker:
                await asked.wait()


if __name__ == "__main__":
    protocol.main(ChancyDriver())
