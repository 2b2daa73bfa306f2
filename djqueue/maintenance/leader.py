"""Hold the leadership, a lease by the store's clock, and resign if a vital service of the leader hangs."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from uuid import UUID

from djqueue import telemetry
from djqueue.engines.protocol import Maintainer
from djqueue.service import Service

LEASE_SECONDS = 5.0
RENEW_SECONDS = 2.0
STUCK_SECONDS = 60.0
"""A vital service that has not done its work for this long hangs: another process has to lead."""
VITAL = ("stager", "lifeline", "scheduler")


class Leader(Service):
    name = "leader"

    def __init__(self, engine: Maintainer, holder: UUID) -> None:
        super().__init__()
        self._engine = engine
        self._holder = holder
        self._leads_until = 0.0
        self._elected = 0.0
        self._may_lead_at = 0.0
        self.term = 0
        self.loops: dict[str, Service] = {}
        """Services of the leader by name; each renewal stores when they last ran."""

    @property
    def is_leader(self) -> bool:
        """Whether the lease is certainly held; False in case of doubt."""
        return time.monotonic() < self._leads_until

    def run_once(self) -> float:
        """Take or renew the lease."""
        asked = time.monotonic()
        was_leader = self.is_leader
        if asked < self._may_lead_at:
            return RENEW_SECONDS
        if was_leader and (stuck := self._stuck(asked)):
            return self._step_back(stuck, asked)
        # A service that has not run yet, or hangs, has had time since the election.
        loops = {name: asked - (loop.last_run or self._elected) for name, loop in self.loops.items()}
        lease = self._engine.elect(self._holder, LEASE_SECONDS, loops=loops if was_leader else None)
        if lease.is_held:
            # Counted from before the statement, so that the lease ends here before it ends for others.
            self._leads_until = asked + LEASE_SECONDS
            self.term = lease.term
        else:
            self._leads_until = 0.0
        if self.is_leader != was_leader:
            self._elected = asked
            telemetry.emit("djqueue.leader.elected" if self.is_leader else "djqueue.leader.lost", term=self.term)
        return RENEW_SECONDS

    def _stuck(self, now: float) -> list[str]:
        runs = {name: loop.last_run for name, loop in self.loops.items() if name in VITAL}
        # Counted from the election, because they did nothing before it.
        return [name for name, run in runs.items() if now - max(run or 0.0, self._elected) > STUCK_SECONDS]

    def _step_back(self, stuck: Sequence[str], now: float) -> float:
        telemetry.emit("djqueue.leader.stuck", logging.ERROR, term=self.term, loops=", ".join(stuck))
        self._leads_until = 0.0
        # Long enough for every other process to be elected; without another one, this process leads again.
        self._may_lead_at = now + LEASE_SECONDS
        self._engine.resign(self._holder)
        return RENEW_SECONDS

    def on_stop(self) -> None:
        """Resign at once instead of letting the lease expire."""
        try:
            if self.is_leader:
                self._leads_until = 0.0
                self._engine.resign(self._holder)
        finally:
            self._engine.close()
