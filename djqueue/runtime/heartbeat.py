"""Beat for living workers, and watch the beats of all.

A beat is a counter in the store. Whoever watches decides by its own monotonic clock how long a counter has stood
still, and only while its own looks succeed without a gap: an outage of the store must not kill the whole fleet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from uuid import UUID

from djqueue.engines.protocol import Registrar
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.runtime.claims import ClaimBlock
from djqueue.service import Service

BEAT_SECONDS = 2.0
SILENT_SECONDS = 10.0
_GAP_SECONDS = 3 * BEAT_SECONDS


class Heart(Service):
    name = "heart"
    # After an outage all hearts must beat again long before the first of them may call another one silent.
    longest_pause_seconds = BEAT_SECONDS

    def __init__(self, engine: Registrar, *, on_dead: Callable[[UUID], None]) -> None:
        """``on_dead`` is called when the store says that one of ours is dead for ever, or does not know it any more."""
        super().__init__()
        self._engine = engine
        self._on_dead = on_dead
        self._blocks: dict[UUID, ClaimBlock] = {}
        self._draining: frozenset[UUID] = frozenset()
        """Replaced and never changed, like ``_blocks``: another thread may be going through it."""
        self._seen: dict[UUID, tuple[int, float]] = {}
        self._dead: list[UUID] = []
        self._looked = 0.0
        self._running: dict[int, int] = {}
        """Job id → claim of what ran at the last beat."""
        self._noted: dict[int, int] = {}
        """Job id → claim of that of it that the store knows of."""

    def add(self, worker: UUID, block: ClaimBlock) -> None:
        """Beat for this worker from now on. Its row is committed already."""
        block.record_beat()
        self._blocks = {**self._blocks, worker: block}

    def remove(self, worker: UUID) -> None:
        self._blocks = {id: block for id, block in self._blocks.items() if id != worker}
        self._draining -= {worker}

    def set_draining(self, worker: UUID) -> None:
        self._draining |= {worker}

    def silent(self) -> dict[UUID, int]:
        """Workers whose beat has stood still for ten seconds of unbroken watching, each with that beat."""
        if time.monotonic() - self._looked > _GAP_SECONDS:
            return {}
        # Counted up to the last look and not to this moment: a beat that came since has not been seen yet.
        looked = self._looked
        return {worker: beat for worker, (beat, since) in dict(self._seen).items() if looked - since >= SILENT_SECONDS}

    def dead(self) -> list[UUID]:
        """Workers that are marked as dead and still have a row."""
        return self._dead

    def run_once(self) -> float:
        """Beat once and look at everybody's beat."""
        blocks = self._blocks
        asked = time.monotonic()
        beats = self._engine.beat(blocks.keys(), draining=self._draining & blocks.keys())
        # First, for whoever is told of one asks here whether it is dead or unknown.
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
        """Note in the store what has run since the last beat at least: should we be lost together, it has spent its attempt.

        Shorter jobs cost nothing by it.
        """
        running: dict[int, int] = {}
        for block in blocks:
            with suppress(ValueError):  # closed meanwhile
                running |= block.begun()
        unnoted = {id: claim for id, claim in self._running.items() if running.get(id) == claim != self._noted.get(id)}
        self._running = running
        self._noted = {id: claim for id, claim in self._noted.items() if running.get(id) == claim}
        if unnoted:
            with suppress(EngineUnavailable, EngineRefused):  # the beat itself was heard
                noted = self._engine.note_begun(unnoted)
                self._noted |= {id: claim for id, claim in unnoted.items() if id in noted}

    def on_stop(self) -> None:
        self._engine.close()
