"""Hold the lead, a lease by the store's clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from djqueue import telemetry
from djqueue.engines.protocol import WorkerEngine
from djqueue.service import Service

LEASE_SECONDS = 5.0
RENEW_SECONDS = 2.0


class HasLastRun(Protocol):
    last_run: float | None


class Leader(Service):
    name = "leader"

    def __init__(self, engine: WorkerEngine, holder: UUID) -> None:
        super().__init__()
        self._engine = engine
        self._holder = holder
        self._leads_until = 0.0
        self.term = 0
        self.loops: Mapping[str, HasLastRun] = {}
        """What works under this lead, by name: when it last did is told with each renewal."""

    @property
    def is_leader(self) -> bool:
        """Whether the lease is held for certain; in any doubt, no."""
        return time.monotonic() < self._leads_until

    def run_once(self) -> float:
        """Take or renew the lease."""
        asked = time.monotonic()
        was_leader = self.is_leader
        loops = {name: asked - loop.last_run for name, loop in self.loops.items() if loop.last_run is not None}
        lease = self._engine.elect(self._holder, LEASE_SECONDS, loops=loops if was_leader else None)
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
