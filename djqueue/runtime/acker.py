"""Write outcomes in batches.

One thread takes whatever has piled up and writes it in one statement. That is all the batching there is: when idle, a
single outcome is written at once; under load the interpreter hands this thread the GIL every few milliseconds, and
while a batch is on its way the next one piles up. What cannot be written is kept and tried again, for as long as the
worker lives: an outcome is never dropped because the store was away.

A batch is bounded in number and in size. Whatever goes wrong with one, the next has half as many, down to one: a server that
hangs up at a message, or runs out of memory or time with it, looks like one that is away. An outcome that fails alone goes
behind the others.

One thing is not tried twice: to put a job back that was taken out of the store to run at most once. When the answer is lost,
it may be there, or with another worker already, and would run twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from queue import Empty, SimpleQueue

from djqueue import telemetry
from djqueue.engines.protocol import WorkerEngine
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.encoding import in_ascii
from djqueue.jobs.records import Ack
from djqueue.jobs.states import JobState
from djqueue.runtime.claims import ClaimBlock
from djqueue.service import Service

BATCH_LIMIT = 1000
BATCH_CHARACTERS = 16_000_000
"""Of a batch of more than one outcome. PostgreSQL hangs up at a message of a gigabyte."""
LARGE_CHARACTERS = 1_000_000
LONELY_FAILURES = 5
"""So often a large outcome is tried alone, while the store takes others. Then the job fails with a small one."""
_UNSTORABLE = (
    '{"exception": "djqueue.exceptions.EngineRefused", "message": "The outcome could not be stored; the log of the'
    ' worker says why.", "traceback": ""}'
)

_NO_JOB = Ack(0, 0, JobState.COMPLETED)
"""No job has this id: it is stale everywhere, and changes nothing."""


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
        self._limit = BATCH_LIMIT
        self._lonely: dict[int, tuple[int, int]] = {}
        """By claim_slot: how often a large outcome failed alone, and how many outcomes had been written when it first did."""
        self._when_accepted: dict[int, Callable[[], None]] = {}
        """By claim_slot: who wants to know that an outcome is stored."""
        self.stale = 0
        """Outcomes that came too late: the job was rescued or handed back meanwhile."""
        self.accepted = 0

    def put(self, ack: Ack, claim_slot: int, *, when_accepted: Callable[[], None] | None = None) -> None:
        """Write this outcome soon; ``claim_slot`` is where its claim stands in the claim block."""
        if when_accepted is not None:
            self._when_accepted[claim_slot] = when_accepted
        self._queue.put((ack, claim_slot))

    def finalize_elsewhere(self, claim_slot: int, *, is_accepted: bool) -> None:
        """Count an outcome that a task's own transaction has stored, or that was refused there; from any thread."""
        self._claims.release(claim_slot)
        if is_accepted:
            self.accepted += 1
        else:
            self.stale += 1
        self._on_flushed()

    def wake(self) -> None:
        self._queue.put(None)

    def run(self) -> None:
        # Connect while the producer does, and let the session read what it needs to store an outcome, before there is one: the first
        # takes many times as long as those that follow, and a thousand jobs may have ended by then.
        with suppress(Exception):  # the first outcome meets the same error, and says so
            self._engine.ack([_NO_JOB])
        super().run()

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
        while chunk := self._next_chunk():
            try:
                accepted = self._engine.ack([ack for ack, _ in chunk])
            except EngineRefused as error:
                if len(chunk) > 1:
                    # One of them is bad. Among fewer, each of the others is stored.
                    self._limit = len(chunk) // 2
                    continue
                accepted = self._degrade(chunk[0], error)
            except Exception as error:
                if isinstance(error, EngineUnavailable) and error.accepted:
                    # They are stored. Written again, they would look as if they had come too late.
                    chunk = self._finalize_stored(chunk, error.accepted)
                if not (isinstance(error, EngineUnavailable) and error.is_undone):
                    self._drop_put_back(chunk, error)
                self._limit = max(1, len(chunk) // 2)
                if len(chunk) != 1 or not self._is_hopeless(chunk[0]):
                    raise
                accepted = self._discard(chunk[0], error)
            else:
                self._limit = min(BATCH_LIMIT, 2 * self._limit)
            # Only now: what is not known to be stored is written again after a failure.
            self._remove(chunk)
            self._finalize(chunk, accepted)

    def _next_chunk(self) -> list[tuple[Ack, int]]:
        chunk = self._batch[: self._limit]
        if any(ack.taken is not None for ack, _ in chunk):
            # Apart from the others: what is known of their failure is known of all of them.
            chunk = [item for item in chunk if item[0].taken is not None]
        # Results alone make almost all of it; the exact sum would cost each job a tenth of a microsecond.
        results = sum(map(len, filter(None, [ack.result for ack, _ in chunk])))
        if len(chunk) > 1 and (chunk[0][0].taken is not None or results > BATCH_CHARACTERS / 2):
            sizes = accumulate(_characters(ack) for ack, _ in chunk)
            chunk = chunk[: max(1, sum(size <= BATCH_CHARACTERS for size in sizes))]
        return chunk

    def _remove(self, chunk: list[tuple[Ack, int]]) -> None:
        if self._batch[: len(chunk)] == chunk:
            del self._batch[: len(chunk)]
        else:
            claim_slots = {claim_slot for _, claim_slot in chunk}
            self._batch = [item for item in self._batch if item[1] not in claim_slots]

    def _drop_put_back(self, chunk: list[tuple[Ack, int]], error: Exception) -> None:
        dropped = [item for item in chunk if item[0].taken is not None and not item[0].state.is_final]
        if dropped:
            ids = [ack.id for ack, _ in dropped]
            telemetry.emit("djqueue.ack.dropped", logging.WARNING, jobs=ids, error=str(error))
            self._remove(dropped)
            for _, claim_slot in dropped:
                self._claims.release(claim_slot)

    def _is_hopeless(self, item: tuple[Ack, int]) -> bool:
        """Let an outcome that failed alone wait behind the others; return whether it is at fault, and not the store."""
        if item not in self._batch:
            return False
        self._remove([item])
        self._batch.append(item)
        ack, claim_slot = item
        if _characters(ack) < LARGE_CHARACTERS:
            return False
        failures, written = self._lonely.get(claim_slot, (0, self.accepted))
        self._lonely[claim_slot] = (failures + 1, written)
        return failures + 1 >= LONELY_FAILURES and self.accepted > written

    def _finalize_stored(self, chunk: list[tuple[Ack, int]], accepted: frozenset[int]) -> list[tuple[Ack, int]]:
        """Settle those of a chunk that were stored; return the others."""
        stored = [item for item in chunk if item[0].id in accepted]
        self._remove(stored)
        self._finalize(stored, {ack.id for ack, _ in stored})
        return [item for item in chunk if item[0].id not in accepted]

    def _degrade(self, item: tuple[Ack, int], error: EngineRefused) -> set[int]:
        """Store a refused outcome with the texts of its failure in ASCII: a database need not be in UTF-8."""
        ack, _ = item
        plain = ack._replace(error=in_ascii(ack.error), note=in_ascii(ack.note))
        if plain != ack:
            try:
                return self._engine.ack([plain])
            except EngineRefused as other:
                error = other
        return self._discard(item, error)

    def _discard(self, item: tuple[Ack, int], error: Exception) -> set[int]:
        ack, claim_slot = item
        telemetry.emit("djqueue.ack.refused", logging.ERROR, job=ack.id, error=str(error))
        state, started, finished = JobState.DISCARDED, ack.started, ack.finished
        try:
            return self._engine.ack(
                [Ack(ack.id, ack.claim, state, started, finished, None, _UNSTORABLE, taken=ack.taken)]
            )
        except EngineRefused:
            # Not the outcome is bad, but what the store has of the job. It must not keep the others.
            self._remove([item])
            if ack.taken is None:
                self._batch.append(item)
            else:
                self._claims.release(claim_slot)
            raise

    def _finalize(self, chunk: list[tuple[Ack, int]], accepted: set[int]) -> None:
        self.accepted += len(accepted)
        for ack, claim_slot in chunk:
            when_accepted = self._when_accepted.pop(claim_slot, None) if self._when_accepted else None
            if self._lonely:
                self._lonely.pop(claim_slot, None)
            self._claims.release(claim_slot)
            if ack.id not in accepted:
                self.stale += 1
                telemetry.emit("djqueue.ack.stale", logging.WARNING, job=ack.id, claim=ack.claim, state=ack.state.value)
            elif when_accepted is not None:
                when_accepted()


def _characters(ack: Ack) -> int:
    """Return about how much an outcome makes of a message."""
    count = len(ack.result or "") + len(ack.error or "")
    if (job := ack.taken) is not None:
        count += len(job.args) + len(job.kwargs) + len(job.errors) + len(job.meta)
    return count
