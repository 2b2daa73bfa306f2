"""Celery with its thread pool and no result backend."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import protocol
from celery import Celery

app = Celery("bench", broker=os.environ["REDIS_URL"])
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)


@app.task(name="bench", autoretry_for=(protocol.Again,), default_retry_delay=0, max_retries=2)
def bench(kind: str, number: int, due: float) -> None:
    protocol.run(kind, number, due)


class CeleryDriver(protocol.Driver):
    def setup(self) -> None:
        pass

    def open(self) -> None:
        app.pool.limit = protocol.CLIENTS

    def close(self) -> None:
        app.close()

    def add(self, kind: str, number: int, due: float) -> None:
        bench.apply_async((kind, number, due))

    def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                bench.apply_async((kind, number, 0), producer=producer)

    def add_at(self, kind: str, number: int, due: float) -> None:
        bench.apply_async((kind, number, due), eta=datetime.fromtimestamp(due, UTC))

    def work(self, options: dict[str, Any]) -> None:
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "CRITICAL"]
        name = f"bench{os.getpid()}@localhost"
        app.worker_main(
            ["worker", "--pool", "threads", "--concurrency", str(options["concurrency"]), "-n", name, *quiet]
        )


if __name__ == "__main__":
    protocol.main(CeleryDriver())
