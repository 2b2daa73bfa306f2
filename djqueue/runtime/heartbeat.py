"""Send the heartbeats of this machine's workers, and watch those of all workers.

A heartbeat is a counter in the store. Each watching process measures with its own monotonic clock how long a counter has
not changed, and only while it reads the counters without a gap: an outage of the store must not make every worker look
dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from uuid import UUID

from djqueue.engines.protocol import Registrar
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.silence import BEAT_SECONDS, SILENT_SECONDS
from djqueue.runtime.claims import ClaimBlock
from djqueue.service import Service

_GAP_SECONDS = 3 * BEAT_SECONDS


class Heartbeats(Service):
    name = "heartbeat"
    # After an outage every process must beat again long before the first of them may report another one as silent.
    longest_pause_seconds = BEAT_SECONDS

    def __init__(self, engine: Registrar, *, on_dead: Callable[[UUID], None]) -> None:
        """``on_dead`` is called when the store has marked one of our workers as dead, or has no row for it."""
        super().__init__()
        self._engine = engine
        self._on_dead = on_dead
        self._blocks: dict[UUID, ClaimBlock] = {}
        self._draining: frozenset[UUID] = frozenset()
        """Replaced and never changed, like ``_blocks``: another thread may be iterating over it."""
        self._seen: dict[UUID, tuple[int, float]] = {}
        self._dead: list[UUID] = []
        self._looked = 0.0
        self._running: dict[int, int] = {}
        """Job id → claim of what ran at the last heartbeat."""
        self._noted: dict[int, int] = {}
        """Job id → claim of those that the store has recorded."""

    def add(self, worker: UUID, block: ClaimBlock) -> None:
        """Send heartbeats for this worker from now on. Its row is committed already."""
        block.record_beat()
        self._blocks = {**self._blocks, worker: block}

    def remove(self, worker: UUID) -> None:
        self._blocks = {id: block for id, block in self._blocks.items() if id != worker}
        self._draining -= {worker}

    def set_draining(self, worker: UUID) -> None:
        self._draining |= {worker}

    def silent(self) -> dict[UUID, int]:
        """Return workers whose counter has not changed for ten seconds of unbroken watching, each with that counter."""
        if time.monotonic() - self._looked > _GAP_SECONDS:
            return {}
        # Counted up to the last read and not to now: a later heartbeat has not been read yet.
        looked = self._looked
        return {worker: beat for worker, (beat, since) in dict(self._seen).items() if looked - since >= SILENT_SECONDS}

    def dead(self) -> list[UUID]:
        """Return workers that are marked as dead and still have a row."""
        return self._dead

    def run_once(self) -> float:
        """Send one heartbeat for each worker and read those of all."""
        blocks = self._blocks
        asked = time.monotonic()
        beats = self._engine.beat(blocks.keys(), draining=self._draining & blocks.keys())
        # First, because ``on_dead`` asks here whether a worker is dead or unknown.
        self._dead = [beat.worker for beat in beats if beat.is_dead]
        alive = {beat.worker for beat in beats if not beat.is_dead}
        for worker, block in blocks.items():
            if worker in alive:
                block.record_beat(asked)
            else:
                self._on_dead(worker)
        now = time.monotonic()
        is_gap = asked - self._looked > _GAP_SECONDS or now - asked > BEAT_SECONDS
        seen = {}
        for beat in beats:
            if not beat.is_dead and beat.worker not in blocks:
                before = self._seen.get(beat.worker)
                is_still = before is not None and before[0] == beat.beat and not is_gap
                seen[beat.worker] = (beat.beat, before[1] if is_still and before is not None else now)
        self._seen = seen
        self._looked = now
        self._note_begun(blocks.values())
        return BEAT_SECONDS

    def _note_begun(self, blocks: Iterable[ClaimBlock]) -> None:
        """Record in the store what has run since the last heartbeat: if this machine is lost, those jobs spend their attempt.

        Shorter jobs cost nothing.
        """
        running: dict[int, int] = {}
        for block in blocks:
            with suppress(ValueError):  # closed meanwhile
                running |= block.begun()
        unnoted = {id: claim for id, claim in self._running.items() if running.get(id) == claim != self._noted.get(id)}
        self._running = running
        self._noted = {id: claim for id, claim in self._noted.items() if running.get(id) == claim}
        if unnoted:
            with suppress(EngineUnavailable, EngineRefused):  # the heartbeat itself was stored
                noted = self._engine.note_begun(unnoted)
                self._noted |= {id: claim for id, claim in unnoted.items() if id in noted}

    def on_stop(self) -> None:
        self._engine.close()
