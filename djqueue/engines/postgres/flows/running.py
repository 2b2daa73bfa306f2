"""What a running job stores beside its outcome, and the signals that a job waits for."""

from __future__ import annotations

from datetime import datetime

from django.db import connections

from djqueue.engines.control import BY_LENGTH, clean
from djqueue.engines.postgres.application import Application
from djqueue.engines.postgres.flows.effects import After
from djqueue.engines.postgres.flows.settling import settle_after_commit
from djqueue.jobs.flows import SIGNAL_TASK


class PostgresSteps(Application):
    def step_here(self, id: int, claim: int, name: str, value: str) -> bool:
        return bool(self.execute("step", {"id": id, "claim": claim, "name": name, "value": value}))

    def signal(self, job_id: int, payload: str, *, by: str = "", now: datetime | None = None) -> bool:
        if not 0 < job_id < 2**63:
            return False
        who = clean(by, BY_LENGTH)
        params = {"id": job_id, "task": SIGNAL_TASK, "payload": payload, "by": who, "now": now}
        rows = self.execute("signal", params)
        if rows:
            [(_, is_awaited, counts)] = rows
            after = After(counts=counts or [], has_events=bool(is_awaited))
            settle_after_commit(connections[self.alias], wakes=self.listen, after=after)
        return bool(rows)
