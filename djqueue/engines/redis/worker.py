"""The verbs of workers and maintenance on Redis: one Lua file each, on a connection of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import NUMBERS, clock, read_claimed
from djqueue.records import Ack, ClaimedJob, WorkerInfo

_LONGEST_DELAY = 3650 * 86400  # seconds: Python cannot read a year beyond 9999
_CHUNK = 1000


class RedisWorkerEngine:
    """The verbs of workers and maintenance on one connection of their own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def fetch(
        self, queue: str, limit: int, worker: UUID, *, from_start: bool = False, now: datetime | None = None
    ) -> list[ClaimedJob]:
        """Claim up to ``limit`` available jobs in run order, counting the attempt and raising the claim."""
        if limit <= 0:
            return []
        answer = self._client.run("fetch", queue, min(limit, _CHUNK), str(worker), clock(now))
        if not answer:
            return []
        at, ids, payloads, runs = answer
        return [
            read_claimed(ClaimedJob, at, id, payload, run)
            for id, payload, run in zip(ids, payloads, runs, strict=True)
            if payload is not None
        ]

    def ack(self, acks: Sequence[Ack], *, now: datetime | None = None) -> set[int]:
        """Store outcomes; return the ids that were accepted. A stale claim changes nothing."""
        accepted: set[int] = set()
        for first in range(0, len(acks), _CHUNK):
            part = acks[first : first + _CHUNK]
            flat: list[Any] = []
            clock_now = time.monotonic()
            for id, claim, state, started, finished, result, error, delay, is_spent, note, _ in part:
                flat += (
                    str(id),
                    claim,
                    NUMBERS[state],
                    started is not None and int((clock_now - started) * 1e6),
                    max(0, int((clock_now - finished) * 1e6)) if finished else 0,
                    is_spent,
                    result is not None and result != "null" and result,
                    error is not None and error,
                    int(min(max(delay, 0.0), _LONGEST_DELAY) * 1e6),
                    note is not None and note,
                )
            refused = {place - 1 for place in self._client.run("ack", clock(now), self._client.pack(flat))}
            accepted.update(ack.id for place, ack in enumerate(part) if place not in refused)
        return accepted

    def register(self, workers: Sequence[WorkerInfo]) -> None:
        """Announce workers before their first fetch."""
        for worker in workers:
            info = (
                worker.name,
                worker.hostname,
                worker.pid,
                dict(worker.queues),
                worker.concurrency,
            )
            self._client.run("register", str(worker.id), self._client.pack(info))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._client.close()
