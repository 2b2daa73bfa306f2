"""The seam between djqueue and a store.

Every verb that needs the time takes ``now=None``; None is the store's own clock, and tests pass a time instead of
sleeping. Verbs are safe to call from many processes at once. A worker's verb that cannot reach the store raises
``EngineUnavailable``; one whose values the store refuses raises ``EngineRefused`` and has done nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from djqueue.records import (
    Ack,
    ClaimedJob,
    Health,
    Heartbeat,
    InsertedJob,
    Job,
    Lease,
    NewJob,
    Pruned,
    PruneRule,
    QueueCounts,
    Rescued,
    Retried,
    Staged,
    WorkerInfo,
)

STAGE = "!stage"
"""What the stager marks while it sleeps. No queue can have this name."""
STAGE_LOOK_SECONDS = 1.0
"""How long the stager sleeps at most. A job that is due later is found by its next look, and wakes nobody."""
SOON_SECONDS = 1.5 * STAGE_LOOK_SECONDS
"""Whoever stores a job that is due this soon wakes the stager."""


def put_back(queue: str) -> str:
    """Return the name to mark for one who wants to know that a job was put back into this queue before its turn."""
    return f"{queue}!"


class Engine(Protocol):
    """One store, as the application sees it: its verbs join the caller's transaction, if there is one."""

    def insert(self, jobs: Sequence[NewJob], *, now: datetime | None = None) -> list[InsertedJob]:
        """Store the jobs and answer in the same order; for a duplicate, with the live job that holds its key.

        Available jobs wake a sleeping worker as soon as they can be seen: after the caller's commit.
        """

    def get(self, job_id: int) -> Job | None:
        """Return the job, live or finished; None if there is none of this id."""

    def retry(self, ids: Collection[int], *, now: datetime | None = None) -> list[Retried]:
        """Make finished jobs available again and answer in the same order.

        Attempts go on counting, with room for one more. A job whose unique key a live job holds stays finished.
        """

    def counts(self) -> list[QueueCounts]:
        """Count live jobs by queue and state."""

    def health(self) -> Health:
        """Look at everything that tells whether jobs flow. Slow reads are cut off, and missing then."""

    def open_worker(self) -> WorkerEngine:
        """Open what one thread of a worker or supervisor needs: a connection of its own."""

    def open_listener(self) -> Listener:
        """Open a listener; it belongs to the one thread that waits on it."""


class WorkerEngine(AbstractContextManager["WorkerEngine"], Protocol):
    """The verbs of a worker and of maintenance, on a connection of their own that reconnects when it must."""

    def fetch(
        self, queue: str, limit: int, worker: UUID, *, from_start: bool = False, now: datetime | None = None
    ) -> list[ClaimedJob]:
        """Claim up to ``limit`` available jobs in run order, counting the attempt and raising the claim.

        Nothing for a worker that is not registered or is dead. Fewer than ``limit`` does not mean that there are no more.
        An engine may take a shortcut for a while, and pass over jobs that were put back; ``skipping`` tells, and
        ``from_start`` forbids it. Nothing at all is only said after a search from the start.
        """

    @property
    def skipping(self) -> Collection[str]:
        """The queues in which fetches take a shortcut. Whoever puts a job back there wakes ``put_back(queue)``."""

    def ack(self, acks: Sequence[Ack], *, now: datetime | None = None) -> set[int]:
        """Store outcomes; return the ids that were accepted. A stale claim changes nothing.

        A retryable or scheduled job without a delay is available at once. ``EngineRefused``: one of the outcomes cannot be
        stored, and none of the batch was.
        """

    def stage(self, limit: int = 5000, *, from_start: bool = False, now: datetime | None = None) -> Staged:
        """Make due jobs available.

        An engine may take a shortcut for a while and find jobs late that committed late; ``from_start`` forbids it.
        """

    def wake(self, queues: Collection[str]) -> None:
        """Wake the workers that sleep on these queues."""

    def register(self, workers: Sequence[WorkerInfo]) -> None:
        """Announce workers; committed before their first fetch. Idempotent, and no way back for the dead."""

    def deregister(self, workers: Collection[UUID]) -> None:
        """Forget workers that left nothing behind."""

    def bury(self, workers: Collection[UUID]) -> None:
        """Mark workers as dead for ever: their beats are refused and they may not fetch."""

    def disconnect(self, workers: Collection[UUID]) -> int:
        """End what dead workers still have under way in the store, where that can be told; return how many connections.

        A claim that was sent before the death could commit after the rescue otherwise.
        """

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        """Raise the beat of living workers and return the beats of all known workers.

        A worker that is missing from the answer, or dead in it, is dead for ever.
        """

    def rescue(
        self,
        workers: Collection[UUID],
        *,
        ran: Mapping[int, int] | None = None,
        reason: str = "",
        limit: int = 5000,
        now: datetime | None = None,
    ) -> Rescued:
        """Take jobs back from dead workers.

        ``ran`` (id → claim) is what really ran and so spends its attempt; None: not known, all of it.
        ``reason`` is recorded with the spent attempt.
        """

    def rescue_ownerless(self, *, limit: int = 5000, now: datetime | None = None) -> Rescued:
        """Take jobs back whose claimer has no worker row."""

    def prune(
        self,
        rules: Sequence[PruneRule],
        *,
        place: Any = None,
        limit: int = 1000,
        queue: str | None = None,
        is_dry_run: bool = False,
        now: datetime | None = None,
    ) -> Pruned:
        """Look at the next ``limit`` finished jobs, oldest first, and delete those that their rule lets go.

        ``place`` is what the step before returned; None begins a pass. A job without a rule stays, and so does a job that
        somebody else has locked. ``queue``: leave those of all other queues.
        """

    def elect(
        self, holder: UUID, ttl_seconds: float, *, loops: Mapping[str, float] | None = None, now: datetime | None = None
    ) -> Lease:
        """Take or renew the lead. ``loops``: seconds since each of the leader's loops did its work, for who looks on."""

    def resign(self, holder: UUID) -> None:
        """Give the lead up, so that another takes it at once."""

    def close(self) -> None:
        """Close the connection. Idempotent."""


class Listener(AbstractContextManager["Listener"], Protocol):
    """Waiting for work without polling.

    ``mark`` before the last look and ``wait`` after it: whoever makes a job available after that look sees the mark
    and wakes the sleeper. Where the store cannot wake anybody (a pooler in between), ``mark`` does nothing and
    ``wait`` returns at its timeout.
    """

    def mark(self, queues: Collection[str]) -> None:
        """Say that somebody is about to sleep on these queues."""

    def unmark(self) -> None:
        """Say that nobody sleeps here any more. Cheap when nothing is marked."""

    def wait(self, timeout: float) -> set[str]:
        """Sleep until one of the queues is woken, ``interrupt`` is called or ``timeout`` seconds passed.

        Return the payloads of the wake-ups, which may be empty.
        """

    def interrupt(self) -> None:
        """End the current or next ``wait``. The only method that other threads and signal handlers may call."""

    def close(self) -> None:
        """Close the connection. Idempotent."""
