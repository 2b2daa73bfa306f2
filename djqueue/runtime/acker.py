"""Write outcomes in batches.

One thread takes whatever has piled up and writes it in one statement. That is all the batching there is: when idle, a
single outcome is written at once; under load the interpreter hands this thread the GIL every few milliseconds, and
while a batch is on its way the next one piles up. What cannot be written is kept and tried again, for as long as the
worker lives: an outcome is never dropped because the store was away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue

from djqueue import telemetry
from djqueue.engines.protocol import WorkerEngine
from djqueue.exceptions import EngineRefused
from djqueue.records import Ack
from djqueue.runtime.claims import ClaimBlock
from djqueue.service import Service
from djqueue.states import JobState

BATCH_LIMIT = 1000
_UNSTORABLE = (
    '{"exception": "djqueue.exceptions.EngineRefused", "message": "The outcome could not be stored; the log of the'
    ' worker says why.", "traceback": ""}'
)


class Acker(Service):
    name = "acker"
    # An outcome that waits for the store holds a slot of the claim block, and keeps a worker that leaves from leaving.
    longest_pause_seconds = 3.0

    def __init__(
        self, engine: WorkerEngine, claims: ClaimBlock, *, on_flushed: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._engine = engine
        self._claims = claims
        self._on_flushed = on_flushed
        self._queue: SimpleQueue[tuple[Ack, int] | None] = SimpleQueue()
        self._batch: list[tuple[Ack, int]] = []
        self._when_accepted: dict[int, Callable[[], None]] = {}
        """By place: who wants to know that an outcome is stored."""
        self.stale = 0
        """Outcomes that came too late: the job was rescued or handed back meanwhile."""
        self.accepted = 0

    def put(self, ack: Ack, place: int, *, when_accepted: Callable[[], None] | None = None) -> None:
        """Write this outcome soon; ``place`` is where its claim stands in the claim block."""
        if when_accepted is not None:
            self._when_accepted[place] = when_accepted
        self._queue.put((ack, place))

    def settle_elsewhere(self, place: int, *, accepted: bool) -> None:
        """Note an outcome that a task's own transaction has stored, or that was refused there; from any thread."""
        self._claims.release(place)
        if accepted:
            self.accepted += 1
        else:
            self.stale += 1
        self._on_flushed()

    def wake(self) -> None:
        self._queue.put(None)

    def run_once(self) -> float:
        """Wait for an outcome and write it together with all that are there by then."""
        queue, batch = self._queue, self._batch
        if not batch and (item := queue.get()) is not None:
            batch.append(item)
        try:
            while len(batch) < BATCH_LIMIT:
                if (item := queue.get_nowait()) is not None:
                    batch.append(item)
        except Empty:
            pass
        if batch:
            self._flush()
            self._on_flushed()
        return 0

    def on_stop(self) -> None:
        self._engine.close()

    def _flush(self) -> None:
        limit = BATCH_LIMIT
        while self._batch:
            part = self._batch[:limit]
            try:
                accepted = self._engine.ack([ack for ack, _ in part])
            except EngineRefused as error:
                if len(part) > 1:
                    # One of them is bad. Alone, each of the others is stored.
                    limit = 1
                    continue
                accepted = self._discard(part[0][0], error)
            # Only now: what is not known to be stored is written again after a failure.
            del self._batch[: len(part)]
            self._settle(part, accepted)

    def _discard(self, ack: Ack, error: EngineRefused) -> set[int]:
        telemetry.emit("djqueue.ack.refused", logging.ERROR, job=ack.id, error=str(error))
        return self._engine.ack(
            [
                Ack(
                    ack.id,
                    ack.claim,
                    JobState.DISCARDED,
                    ack.started,
                    ack.finished,
                    None,
                    _UNSTORABLE,
                    taken=ack.taken,
                )
            ]
        )

    def _settle(self, part: list[tuple[Ack, int]], accepted: set[int]) -> None:
        self.accepted += len(accepted)
        for ack, place in part:
            when_accepted = self._when_accepted.pop(place, None) if self._when_accepted else None
            self._claims.release(place)
            if ack.id not in accepted:
                self.stale += 1
                telemetry.emit("djqueue.ack.stale", logging.WARNING, job=ack.id, claim=ack.claim, state=ack.state.value)
            elif when_accepted is not None:
                when_accepted()
