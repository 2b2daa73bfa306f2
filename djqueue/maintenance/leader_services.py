"""The services of the leader, which each supervisor starts beside its workers."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast
from uuid import UUID, uuid4

from djqueue import telemetry
from djqueue.conf import Options
from djqueue.engines.protocol import Engine
from djqueue.maintenance.leader import Leader
from djqueue.maintenance.lifeline import Lifeline
from djqueue.maintenance.pruner import Pruner
from djqueue.maintenance.relay import Relay
from djqueue.maintenance.scheduler import Scheduler
from djqueue.maintenance.stager import Stager
from djqueue.outbox.pending_insert import PendingEngine
from djqueue.outbox.rows import Outbox
from djqueue.service import Service

_STALLED_SECONDS = 60.0
"""After this time without a run of the scheduler, the crontab is reported as stalled."""


class LeaderServices:
    def __init__(
        self,
        engine: Engine,
        options: Options,
        *,
        silent: Callable[[], Mapping[UUID, int]],
        dead: Callable[[], list[UUID]],
        has_cron: bool,
        outboxes: Sequence[Outbox],
    ) -> None:
        """``silent`` and ``dead`` return what the heartbeats of all workers say; in ``outboxes`` jobs for this store wait."""
        leader = self._leader = Leader(engine.open_maintainer(), uuid4())
        self.lifeline = Lifeline(engine.open_maintainer(), leader, silent=silent, dead=dead)
        staging = engine.open_maintainer()
        stager = Stager(staging, staging.open_listener(), is_leader=lambda: leader.is_leader)
        pruner = Pruner(engine.open_maintainer(), options.prune_rules(), is_leader=lambda: leader.is_leader)
        self._scheduler: Scheduler | None = None
        self._led: list[Service] = [stager, pruner]
        if has_cron:
            self._scheduler = Scheduler(engine.open_cron(), store=engine.store, is_leader=lambda: leader.is_leader)
            self._led.append(self._scheduler)
        leader.loops = {"stager": stager, "pruner": pruner, "lifeline": self.lifeline}
        if self._scheduler is not None:
            leader.loops["scheduler"] = self._scheduler
        if outboxes:
            # A backend with an outbox has an engine that takes pushes.
            relay = Relay(cast(PendingEngine, engine), outboxes, is_leader=lambda: leader.is_leader)
            self._led.append(relay)
            leader.loops["relay"] = relay
        self._warned = -math.inf

    @property
    def services(self) -> list[Service]:
        """The services in the order in which they start; they end in the opposite order."""
        return [self._leader, *self._led, self.lifeline]

    def stop_leading(self) -> None:
        """Let another process lead. The lifeline continues, because it rescues the jobs of this supervisor's own workers."""
        for service in (self._leader, *self._led):
            service.stop()

    def watch(self) -> None:
        """Report a scheduler that does not run: a module whose import never ends would not be noticed otherwise."""
        scheduler = self._scheduler
        if scheduler is None or scheduler.is_stopping:
            return
        still = time.monotonic() - scheduler.last_success
        if still > _STALLED_SECONDS and time.monotonic() - self._warned > _STALLED_SECONDS:
            self._warned = time.monotonic()
            telemetry.emit("djqueue.cron.stalled", logging.ERROR, still_seconds=still, is_alive=scheduler.is_alive)
