"""Send what is left in an outbox: its transaction has committed, and the process that should have sent it has ended.

Runs on the leader only. It skips rows that their own process may still send; if both send the same jobs, the store accepts
them once. A row that the store does not accept stays, is logged, and is retried later: the store may have been full.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from djqueue import telemetry
from djqueue.exceptions import EngineUnavailable
from djqueue.outbox.pending_insert import PendingEngine, PendingInsert
from djqueue.outbox.rows import Outbox, Waiting
from djqueue.service import Service

LOOK_SECONDS = 5.0
AGE = timedelta(seconds=10)
"""The process that wrote a row of this age will not send it any more."""
BATCH_LIMIT = 20
"""Maximum number of rows that are read at once; fewer if they are large."""
_LARGE_CHARACTERS = 1_000_000
_ASIDE_SECONDS = 60.0


class Relay(Service):
    name = "relay"

    def __init__(
        self, engine: PendingEngine, outboxes: Sequence[Outbox], *, is_leader: Callable[[], bool], age: timedelta = AGE
    ) -> None:
        super().__init__()
        self._engine = engine
        self._outboxes = outboxes
        self._is_leader = is_leader
        self._age = age
        self._aside: dict[UUID, float] = {}

    def run_once(self) -> float:
        """Send one batch of each outbox; return the seconds until the next look."""
        if not self._is_leader():
            return LOOK_SECONDS
        now = time.monotonic()
        self._aside = {row: until for row, until in self._aside.items() if until > now}
        is_more = False
        for outbox in self._outboxes:
            rows = outbox.waiting(self._age, BATCH_LIMIT, but=self._aside)
            outbox.delete_unlocked([row.id for row in rows if self._send(row, outbox)])
            # Fewer large rows are read at once.
            is_more |= len(rows) == BATCH_LIMIT or sum(len(row.text) for row in rows) > _LARGE_CHARACTERS
        self.last_run = time.monotonic()
        return 0.0 if is_more else LOOK_SECONDS

    def on_stop(self) -> None:
        for outbox in self._outboxes:
            outbox.close()
        self._engine.close()

    def _send(self, row: Waiting, outbox: Outbox) -> bool:
        """Return whether the jobs are in the store."""
        try:
            push = PendingInsert.from_text(row.text).aged(row.age)
            push.send(self._engine)
        except EngineUnavailable:
            raise
        except Exception as error:
            # A row that cannot be sent, or was written by a later version, must not delay the others.
            self._aside[row.id] = time.monotonic() + _ASIDE_SECONDS
            telemetry.emit(
                "djqueue.outbox.failure",
                logging.ERROR,
                exc_info=error,
                row=row.id,
                backend=outbox.backend,
                waiting_seconds=row.age.total_seconds(),
                error=str(error),
            )
            return False
        telemetry.emit(
            "djqueue.outbox.sent",
            job=push.ids[0],
            count=len(push.ids),
            task=push.jobs[0].task,
            waiting_seconds=row.age.total_seconds(),
        )
        return True
