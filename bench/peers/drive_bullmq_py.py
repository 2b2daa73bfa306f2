"""BullMQ for Python: as BullMQ for Node, on asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import protocol
from bullmq import Queue, Worker

# redis-py 8 hangs up after 5 s without an answer, and a worker of BullMQ waits longer for what is due later.
CONNECTION = f"{os.environ['REDIS_URL']}?socket_timeout=60"


class BullMQ(protocol.Driver):
    is_async = True

    async def setup(self) -> None:
        pass

    async def open(self) -> None:
        self.queue = Queue("bench", {"connection": CONNECTION})

    async def close(self) -> None:
        await self.queue.close()

    @staticmethod
    def options(kind: str) -> dict[str, Any]:
        return {"attempts": 3} if kind == "flaky" else {}

    async def add(self, kind: str, number: int, due: float) -> None:
        await self.queue.add(kind, {"i": number, "due": due}, self.options(kind))

    async def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        jobs = [{"name": kind, "data": {"i": number, "due": 0}, "opts": self.options(kind)} for number in numbers]
        if jobs:
            await self.queue.addBulk(jobs)

    async def add_at(self, kind: str, number: int, due: float) -> None:
        delay = max(0, round(1000 * (due - time.time())))
        await self.queue.add(kind, {"i": number, "due": due}, {"delay": delay})

    async def work(self, options: dict[str, Any]) -> None:
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)

        async def process(job: Any, token: str) -> None:
            await protocol.arun(job.name, job.data["i"], job.data["due"])

        worker = Worker("bench", process, {"connection": CONNECTION, "concurrency": options["concurrency"]})
        await asked.wait()
        await worker.close(force=True)


if __name__ == "__main__":
    protocol.main(BullMQ())
