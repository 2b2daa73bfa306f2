"""Keep ids in reserve, so that enqueues continue while the store is unavailable.

With an outbox a transaction needs the store only for its ids: its jobs are safe in their rows. So each process keeps some ids
in a pool and can continue for a while when the store does not answer. Nor does it contact the store at each commit then: a
server that accepts connections but does not answer would delay every request for seconds. The relay sends the rows later.

Without an outbox there is no pool: the failed request for an id tells the caller, before the commit, that the job would be lost.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from djqueue.exceptions import EngineUnavailable
from djqueue.outbox.pending_insert import PendingEngine

STOCK = 1000
_AWAY_SECONDS = 5.0
"""After a failure, the store is not contacted again for this long unless it is necessary."""


class IdPool:
    """The ids of one engine, shared by all threads."""

    def __init__(self, engine: PendingEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._ids: Sequence[int] = ()
        self._is_refilling = False
        self._pid = os.getpid()
        self._away_until = 0.0

    @property
    def is_away(self) -> bool:
        """Whether the store recently failed to answer."""
        return time.monotonic() < self._away_until

    def note_absence(self) -> None:
        self._away_until = time.monotonic() + _AWAY_SECONDS

    def reserve(self, count: int) -> Sequence[int]:
        """Return consecutive ids; raise ``EngineUnavailable`` if there are not enough and the store does not answer.

        The store is contacted without the lock, so that other callers can use the remaining ids meanwhile.
        """
        with self._lock:
            if self._pid != os.getpid():
                # A forked child must not use the ids of its parent.
                self._pid, self._ids, self._is_refilling = os.getpid(), (), False
            ids: Sequence[int] = ()
            if len(self._ids) >= count:
                ids, self._ids = self._ids[:count], self._ids[count:]
            is_short = len(ids) < count
            refills = len(self._ids) < STOCK / 2 and not self._is_refilling and (is_short or not self.is_away)
            self._is_refilling |= refills
        if not is_short and not refills:
            return ids
        missing = count if is_short else 0
        try:
            fresh = self._engine.reserve(missing + (STOCK if refills else 0))
            if refills:
                with self._lock:
                    self._ids = fresh[missing:]
        except EngineUnavailable:
            self.note_absence()
            if is_short:
                raise
            return ids
        finally:
            if refills:
                self._is_refilling = False
        return fresh[:count] if is_short else ids
