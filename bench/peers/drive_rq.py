"""RQ: SimpleWorker, which does not fork for each job; one job at a time in a process."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import Any

import protocol
import redis
from rq import Queue, Retry, SimpleWorker


class RQ(protocol.Driver):
    def setup(self) -> None:
        pass

    def open(self) -> None:
        self.queue = Queue("bench", connection=redis.Redis.from_url(os.environ["REDIS_URL"]))

    def close(self) -> None:
        self.queue.connection.close()

    @staticmethod
    def retry(kind: str) -> Retry | None:
        return Retry(max=2) if kind == "flaky" else None

    def add(self, kind: str, number: int, due: float) -> None:
        self.queue.enqueue("protocol.run", kind, number, due, retry=self.retry(kind))

    def add_many(self, kind: str, numbers: protocol.Numbers) -> None:
        jobs = [Queue.prepare_data("protocol.run", (kind, number, 0), retry=self.retry(kind)) for number in numbers]
        if jobs:
            self.queue.enqueue_many(jobs)

    def add_at(self, kind: str, number: int, due: float) -> None:
        self.queue.enqueue_at(datetime.fromtimestamp(due, UTC), "protocol.run", kind, number, due)

    def work(self, options: dict[str, Any]) -> None:
        logging.disable(logging.CRITICAL)
        connection = redis.Redis.from_url(os.environ["REDIS_URL"])
        SimpleWorker([Queue("bench", connection=connection)], connection=connection).work(
            with_scheduler=options["kind"] == "late", logging_level="CRITICAL"
        )


if __name__ == "__main__":
    protocol.main(RQ())
