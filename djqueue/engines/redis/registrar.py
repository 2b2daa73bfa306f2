"""Register workers on Redis and record their heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from djqueue.engines.redis.parts import LIMIT
from djqueue.engines.redis.server import inspect
from djqueue.engines.redis.session import Session
from djqueue.jobs.health import Inspection
from djqueue.jobs.records import Heartbeat, WorkerInfo


class RedisRegistrar(Session):
    def inspect(self) -> Inspection:
        return inspect(self._client)

    def register(self, workers: Sequence[WorkerInfo]) -> None:
        for worker in workers:
            info = (worker.name, worker.hostname, worker.pid, dict(worker.queues), worker.concurrency)
            self._client.run("register", str(worker.id), self._client.pack(info))

    def deregister(self, workers: Collection[UUID]) -> None:
        if workers:
            self._client.run("deregister", *map(str, workers))

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        living, leaving = (self._client.pack(list(map(str, ids))) for ids in (workers, draining))
        rows = iter(self._client.run("beat", living, leaving))
        return [
            Heartbeat(UUID(worker.decode()), beat, bool(is_dead))
            for worker, beat, is_dead in zip(rows, rows, rows, strict=True)
        ]

    def note_begun(self, claims: Mapping[int, int]) -> set[int]:
        flat = [value for id, claim in claims.items() for value in (str(id), claim)]
        noted: set[int] = set()
        for first in range(0, len(flat), 2 * LIMIT):
            noted.update(map(int, self._client.run("note_begun", self._client.pack(flat[first : first + 2 * LIMIT]))))
        return noted
