"""Write outcomes in batches.

One thread takes all outcomes that are waiting and writes them in one statement. There is no other batching: when idle, a
single outcome is written at once; under load the interpreter hands this thread the GIL every few milliseconds, and
while a batch is being written the next one collects. What cannot be written is kept and retried for as long as the
worker lives: an outcome is never dropped because the store did not answer.

A batch is bounded in number and in size. After any failure the next batch has half as many outcomes, down to one: a server
that disconnects because of a message, or runs out of memory or time with it, looks like one that is not reachable. An
outcome that fails alone goes behind the others.

One thing is not retried: to put back a job of an at-most-once queue. If the answer is lost, the job may be in the store or
with another worker already, and would run twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from contextlib import suppress
from itertools import accumulate
from queue import Empty, SimpleQueue

from djqueue import telemetry
from djqueue.engines.protocol import Fetcher
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.encoding import in_ascii
from djqueue.jobs.records import Ack
from djqueue.jobs.states import JobState
from djqueue.runtime.claims import ClaimBlock
from djqueue.service import Service

BATCH_LIMIT = 1000
BATCH_CHARACTERS = 16_000_000
"""Maximum size of a batch of more than one outcome. PostgreSQL disconnects after a message of one gigabyte."""
LARGE_CHARACTERS = 1_000_000
LONELY_FAILURES = 5
"""Number of times a large outcome is tried alone while the store takes others. Then the job fails with a small one."""
_UNSTORABLE = (
    '{"exception": "djqueue.exceptions.EngineRefused", "message": "The outcome could not be stored. The log of the'
    ' worker has the reason.", "traceback": ""}'
)

_NO_JOB = Ack(0, 0, JobState.COMPLETED)
"""No job has this id: the ack is always stale and changes nothing."""


class Acker(Service):
    name = "acker"
    # An outcome that waits for the store holds a claim slot, and delays the end of a stopping worker.
    longest_pause_seconds = 3.0

    def __init__(self, engine: Fetcher, claims: ClaimBlock, *, on_flushed: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._engine = engine
        self._claims = claims
        self._on_flushed = on_flushed
        self._queue: SimpleQueue[tuple[Ack, int] | None] = SimpleQueue()
        self._batch: list[tuple[Ack, int]] = []
        self._limit = BATCH_LIMIT
        self._lonely: dict[int, tuple[int, int]] = {}
        """By claim slot: how often a large outcome failed alone, and how many outcomes had been written when it first did."""
        self._when_accepted: dict[int, Callable[[], None]] = {}
        """By claim slot: function to call once the outcome is stored."""
        self.stale = 0
        """Number of outcomes that came too late: the job was rescued or handed back meanwhile."""
        self.accepted = 0

    def put(self, ack: Ack, claim_slot: int, *, when_accepted: Callable[[], None] | None = None) -> None:
        """Write this outcome soon; ``claim_slot`` is the index of its claim in the claim block."""
        if when_accepted is not None:
            self._when_accepted[claim_slot] = when_accepted
        self._queue.put((ack, claim_slot))

    def finalize_elsewhere(self, claim_slot: int) -> None:
        """Count an outcome that a task's own transaction has stored; from any thread."""
        self._claims.release(claim_slot)
        self.accepted += 1
        self._on_flushed()

    def wake(self) -> None:
        self._queue.put(None)

    def run(self) -> None:
        # Connect now, and let the session load what it needs to store an outcome: the first ack takes many times as long as
        # those that follow, and a thousand jobs may have ended by then.
        with suppress(Exception):  # the first outcome will meet the same error, which is logged then
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
                accepted = self._engine.ack([ack for ack, _ in chunk]).accepted
            except EngineRefused as error:
                if len(chunk) > 1:
                    # One of them is refused. Smaller batches let the others be stored.
                    self._limit = len(chunk) // 2
                    continue
                accepted = self._degrade(chunk[0], error)
            except Exception as error:
                if isinstance(error, EngineUnavailable) and error.accepted:
                    # They are stored. If written again, they would be counted as stale.
                    chunk = self._finalize_stored(chunk, error.accepted)
                if not (isinstance(error, EngineUnavailable) and error.is_undone):
                    self._drop_put_back(chunk, error)
                self._limit = max(1, len(chunk) // 2)
                if len(chunk) != 1 or not self._is_hopeless(chunk[0]):
                    raise
                accepted = self._discard(chunk[0], error)
            else:
                self._limit = min(BATCH_LIMIT, 2 * self._limit)
            # Only now: after a failure, everything that may not be stored is written again.
            self._remove(chunk)
            self._finalize(chunk, accepted)

    def _next_chunk(self) -> list[tuple[Ack, int]]:
        chunk = self._batch[: self._limit]
        if any(ack.taken is not None for ack, _ in chunk):
            # Separate from the others: all of them share the rules for what may be retried.
            chunk = [item for item in chunk if item[0].taken is not None]
        # Results are almost all of the size; the exact sum would cost each job a tenth of a microsecond.
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
        """Move an outcome that failed alone behind the others; return whether the outcome, not the store, is the cause."""
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

    def _degrade(self, item: tuple[Ack, int], error: EngineRefused) -> Set[int]:
        """Store a refused outcome with the texts of its failure in ASCII, because a database may not use UTF-8."""
        ack, _ = item
        plain = ack._replace(error=in_ascii(ack.error), note=in_ascii(ack.note))
        if plain != ack:
            try:
                return self._engine.ack([plain]).accepted
            except EngineRefused as other:
                error = other
        return self._discard(item, error)

    def _discard(self, item: tuple[Ack, int], error: Exception) -> Set[int]:
        ack, claim_slot = item
        telemetry.emit("djqueue.ack.refused", logging.ERROR, job=ack.id, error=str(error))
        try:
            return self._engine.ack(
                [
                    ack._replace(
                        state=JobState.DISCARDED, result=None, error=_UNSTORABLE, delay=0.0, is_spent=True, note=None
                    )
                ]
            ).accepted
        except EngineRefused:
            # The cause is the stored job, not the outcome. It must not delay the others.
            self._remove([item])
            if ack.taken is None:
                self._batch.append(item)
            else:
                self._claims.release(claim_slot)
            raise

    def _finalize(self, chunk: list[tuple[Ack, int]], accepted: Set[int]) -> None:
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
    """Return the approximate size of an outcome in a message."""
    count = len(ack.result or "") + len(ack.error or "")
    if (job := ack.taken) is not None:
        count += len(job.args) + len(job.kwargs) + len(job.errors) + len(job.meta)
    return count
