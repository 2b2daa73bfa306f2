"""Hold the lead, a lease by the store's clock."""

from __future__ import annotations

import time
from uuid import UUID

from djqueue import telemetry
from djqueue.engines.protocol import WorkerEngine
from djqueue.service import Service

LEASE_SECONDS = 5.0
RENEW_SECONDS = 2.0


class Leader(Service):
    name = "leader"

    def __init__(self, engine: WorkerEngine, holder: UUID) -> None:
        super().__init__()
        self._engine = engine
        self._holder = holder
        self._leads_until = 0.0
        self.term = 0

    @property
    def is_leader(self) -> bool:
        """Whether the lease is held for certain; in any doubt, no."""
        return time.monotonic() < self._leads_until

    def run_once(self) -> float:
        """Take or renew the lease."""
        asked = time.monotonic()
        was_leader = self.is_leader
        lease = self._engine.elect(self._holder, LEASE_SECONDS)
        if lease.is_held:
            # Counted from before the question, so that it ends for us before it ends for the others.
            self._leads_until = asked + LEASE_SECONDS
            self.term = lease.term
        else:
            self._leads_until = 0.0
        if self.is_leader != was_leader:
            telemetry.emit("djqueue.leader.elected" if self.is_leader else "djqueue.leader.lost", term=self.term)
        return RENEW_SECONDS

    def on_stop(self) -> None:
        """Give the lead up at once instead of letting the lease run out."""
        try:
            if self.is_leader:
                self._leads_until = 0.0
                self._engine.resign(self._holder)
        finally:
            self._engine.close()
