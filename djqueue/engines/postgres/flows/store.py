"""The verbs of workflows on the application's connection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connections

from djqueue.engines.control import who_and_why
from djqueue.engines.postgres.flows.insert import insert_flow
from djqueue.engines.postgres.flows.reading import PostgresFlowReader
from djqueue.engines.postgres.flows.running import PostgresSteps
from djqueue.engines.postgres.flows.settling import settle_after_commit
from djqueue.jobs.flows import FlowJob, InsertedFlow, NewFlow


class PostgresFlows(PostgresFlowReader, PostgresSteps):
    def insert_flow(
        self, flows: Sequence[NewFlow], jobs: Sequence[FlowJob], *, now: datetime | None = None
    ) -> InsertedFlow:
        return insert_flow(connections[self.alias], flows, jobs, now, wakes=self.listen)

    def close_flow(self, id: int, *, now: datetime | None = None) -> bool:
        is_open = bool(self.execute("flow_close", {"id": id}))
        if is_open:
            settle_after_commit(connections[self.alias], wakes=self.listen)
        return is_open

    def cancel_flow(self, id: int, *, by: str = "", reason: str = "", now: datetime | None = None) -> int:
        if not 0 < id < 2**63:
            return 0
        who, why = who_and_why("Cancelled", by, reason)
        [(count,)] = self.execute("flow_cancel", {"id": id, "by": who, "reason": why})
        settle_after_commit(connections[self.alias], wakes=self.listen)
        return int(count)

    def retry_flow(self, id: int, *, by: str = "", now: datetime | None = None) -> int:
        if not 0 < id < 2**63:
            return 0
        [(count,)] = self.execute("flow_retry", {"id": id})
        if count:
            settle_after_commit(connections[self.alias], wakes=self.listen)
        return int(count)
