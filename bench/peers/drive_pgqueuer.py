"""PgQueuer: ``fast`` fetches batches of ten times the concurrency without a cap on tasks in flight, plain has the cap."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from datetime import timedelta
from typing import Any

import asyncpg
import protocol
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Job, PgQueuer, Queries, RetryRequested


def payload(number: int, due: float) -> bytes:
    return json.dumps([number, due]).encode()


class PgQueuerDriver(protocol.Driver):
    is_async = True

    async def setup(self) -> None:
        connection = await asyncpg.connect(os.environ["DATABASE_URL"])
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def open(self) -> None:
        size = protocol.CLIENTS
        self.pool = await asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=size, max_size=size)
        self.queries = Queries(AsyncpgPoolDriver(self.pool))

    async def close(self) -> None:
        await self.pool.close()

    async def add(self, kind: str, number: int, due: float) -> None:
        await self.queries.enqueue(kind, payload(number, due))

    async def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        payloads = [payload(number, 0) for number in numbers]
        if payloads:
            await self.queries.enqueue([kind] * len(payloads), payloads, [0] * len(payloads))

    async def add_at(self, kind: str, number: int, due: float) -> None:
        await self.queries.enqueue(kind, payload(number, due), execute_after=timedelta(seconds=due - time.time()))

    async def work(self, options: dict[str, Any]) -> None:
        logging.disable(logging.CRITICAL)
        connection = await asyncpg.connect(os.environ["DATABASE_URL"])
        queue = PgQueuer(AsyncpgDriver(connection))

        def register(kind: str) -> None:
            @queue.entrypoint(kind)
            async def handle(job: Job) -> None:
                number, due = json.loads(job.payload or b"")
                try:
                    await protocol.arun(kind, number, due)
                except protocol.Again as problem:
                    raise RetryRequested(delay=timedelta(0)) from problem

        for kind in protocol.KINDS:
            register(kind)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
        concurrency = options["concurrency"]
        if os.environ.get("BENCH_VARIANT") == "fast":
            await queue.qm.run(batch_size=10 * concurrency)
        else:
            await queue.qm.run(batch_size=concurrency, max_concurrent_tasks=2 * concurrency)


if __name__ == "__main__":
    protocol.main(PgQueuerDriver())
