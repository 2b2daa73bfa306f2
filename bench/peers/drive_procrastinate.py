"""Procrastinate: an async worker with its concurrency, and a pool of connections."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import Any

import procrastinate
import protocol

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(
        conninfo=os.environ["DATABASE_URL"], min_size=1, max_size=protocol.CLIENTS + 2
    )
)


def register(kind: str) -> Any:
    @app.task(name=kind, queue="bench", retry=3 if kind == "flaky" else False)
    async def handle(number: int, due: float) -> None:
        await protocol.arun(kind, number, due)

    return handle


TASKS = {kind: register(kind) for kind in protocol.KINDS}


class Procrastinate(protocol.Driver):
    is_async = True

    async def setup(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await app.open_async()

    async def close(self) -> None:
        await app.close_async()

    async def add(self, kind: str, number: int, due: float) -> None:
        await TASKS[kind].defer_async(number=number, due=due)

    async def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        jobs = [{"number": number, "due": 0} for number in numbers]
        if jobs:
            await TASKS[kind].batch_defer_async(*jobs)

    async def add_at(self, kind: str, number: int, due: float) -> None:
        await TASKS[kind].configure(schedule_at=datetime.fromtimestamp(due, UTC)).defer_async(number=number, due=due)

    async def work(self, options: dict[str, Any]) -> None:
        logging.disable(logging.CRITICAL)
        async with app.open_async():
            await app.run_worker_async(
                queues=["bench"], concurrency=options["concurrency"], delete_jobs="never", shutdown_graceful_timeout=2
            )


if __name__ == "__main__":
    protocol.main(Procrastinate())
