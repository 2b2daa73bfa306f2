"""oban-py: one queue whose limit is the concurrency, and a pool to match."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from datetime import UTC, datetime
from typing import Any

import protocol
from oban import Job, Oban, schema, worker


@worker(queue="bench", max_attempts=3)
class Bench:
    async def process(self, job: Job) -> None:
        await protocol.arun(job.args["kind"], job.args["number"], job.args["due"])

    def backoff(self, job: Job) -> int:
        return 0


def job(kind: str, number: int, due: float, **options: Any) -> Job:
    return Bench.new({"kind": kind, "number": number, "due": due}, **options)


class ObanDriver(protocol.Driver):
    is_async = True

    async def setup(self) -> None:
        pool = await Oban.create_pool(os.environ["DATABASE_URL"])
        await schema.install(pool)
        await pool.close()

    async def open(self) -> None:
        size = protocol.CLIENTS
        self.pool = await Oban.create_pool(os.environ["DATABASE_URL"], min_size=size, max_size=size)
        self.oban = Oban(pool=self.pool)

    async def close(self) -> None:
        await self.pool.close()

    async def add(self, kind: str, number: int, due: float) -> None:
        await self.oban.enqueue(job(kind, number, due))

    async def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        jobs = [job(kind, number, 0) for number in numbers]
        if jobs:
            await self.oban.enqueue_many(jobs)

    async def add_at(self, kind: str, number: int, due: float) -> None:
        await self.oban.enqueue(job(kind, number, due, scheduled_at=datetime.fromtimestamp(due, UTC)))

    async def work(self, options: dict[str, Any]) -> None:
        logging.disable(logging.CRITICAL)
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        size = min(options["concurrency"], 20)
        pool = await Oban.create_pool(os.environ["DATABASE_URL"], min_size=size, max_size=size)
        async with Oban(pool=pool, queues={"bench": options["concurrency"]}, shutdown_grace_period=2):
            await asked.wait()
        await pool.close()


if __name__ == "__main__":
    protocol.main(ObanDriver())
