"""Remove unique keys that nobody holds any more.

Nothing depends on it: an insert that meets such a key removes it by itself. It keeps the table small.
"""

from __future__ import annotations

from collections.abc import Callable

from djqueue.engines.protocol import WorkerEngine
from djqueue.service import Service

LOOK_SECONDS = 60.0
BATCH_LIMIT = 10_000


class KeyPruner(Service):
    name = "key pruner"

    def __init__(self, engine: WorkerEngine, *, is_leader: Callable[[], bool]) -> None:
        super().__init__()
        self._engine = engine
        self._is_leader = is_leader

    def run_once(self) -> float:
        """Remove one batch; soon again if there may be more."""
        if not self._is_leader():
            return LOOK_SECONDS
        return 0.5 if self._engine.prune_keys(BATCH_LIMIT) >= BATCH_LIMIT else LOOK_SECONDS

    def on_stop(self) -> None:
        self._engine.close()
