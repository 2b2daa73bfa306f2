"""Register workers on PostgreSQL and record their heartbeats."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from djqueue.engines.postgres.session import Session
from djqueue.engines.postgres.statements import sql
from djqueue.jobs.health import Concern, Inspection
from djqueue.jobs.records import Heartbeat, WorkerInfo

_OLDEST_SERVER = 15_00_00


class PostgresRegistrar(Session):
    def inspect(self) -> Inspection:
        """Only the version is checked."""
        [(version, number)] = self.attempt(lambda connection: connection.execute(sql("inspect")).fetchall())
        concerns = []
        if number < _OLDEST_SERVER:
            text = f"The server is PostgreSQL {version}; djqueue needs PostgreSQL 15 or newer."
            concerns.append(Concern(id="djqueue.E007", text=text, hint="Upgrade the server.", is_fatal=True))
        return Inspection(server=f"PostgreSQL {version}", concerns=concerns)

    def register(self, workers: Sequence[WorkerInfo]) -> None:
        for worker in workers:
            self.run(
                "register",
                {
                    "id": worker.id,
                    "name": worker.name,
                    "hostname": worker.hostname,
                    "pid": worker.pid,
                    "queues": json.dumps(dict(worker.queues)),
                    "concurrency": worker.concurrency,
                },
            )

    def deregister(self, workers: Collection[UUID]) -> None:
        self.run("deregister", {"workers": list(workers)})

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        rows = self.run("beat", {"workers": list(workers), "draining": list(draining)})
        return list(map(Heartbeat._make, rows))

    def note_begun(self, claims: Mapping[int, int]) -> set[int]:
        return {id for (id,) in self.run("note_begun", {"ids": list(claims), "claims": list(claims.values())})}
