"""Keep the queue going: stage, rescue, prune, and elect the process that does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from djqueue.engines.protocol.listener import Listener
from djqueue.engines.protocol.session import Session
from djqueue.jobs.flows import Settled
from djqueue.jobs.records import Lease, Pruned, PruneRule, Rescued, Staged


class Maintainer(Session, Protocol):
    """Verbs do not wait for locks of other transactions: they skip locked rows or, where they cannot, raise ``EngineBusy``."""

    def stage(self, limit: int = 5000, *, now: datetime | None = None) -> Staged:
        """Make due jobs available, and follow-ups whose predecessor has ended; wake workers for them.

        An engine may find jobs that committed late with a delay of up to a few seconds. It finds them at once after the
        listener that ``open_listener`` returns was woken with ``STAGE``.
        """

    def settle(self, limit: int = 1000, *, now: datetime | None = None) -> Settled:
        """Let the ends of jobs in workflows take effect where that was left behind, and add up what was counted; wake workers.

        The process that ends a job does this itself right after its commit. This is for what remains when it died meanwhile, and
        for what would have waited for a lock. ``limit`` is a number of counts and of events.
        """

    def rescue(
        self,
        workers: Collection[UUID],
        *,
        ran: Mapping[int, int] | None = None,
        as_noted: bool = False,
        reason: str = "The worker was lost.",
        limit: int = 5000,
        now: datetime | None = None,
    ) -> Rescued:
        """Take jobs back from dead workers, and wake live ones for them. Jobs with a cancel request are cancelled.

        ``ran`` (job id → claim): the jobs whose function was called; they spend their attempt. None: unknown, so all do.
        ``as_noted``: those that ``note_begun`` recorded spend their attempt. The others go back unspent, with ``"lost"``
        in their meta; a worker records the start of such a job before it calls the function.
        ``reason`` is stored with the spent attempt.
        """

    def rescue_ownerless(self, *, limit: int = 5000, now: datetime | None = None) -> Rescued:
        """Take jobs back whose worker is not registered."""

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
        """Examine the next ``limit`` finished jobs, oldest first, and delete those that their rule no longer keeps.

        ``place`` is the position that the previous call returned; None begins a pass. Jobs without a rule and locked jobs stay.
        ``queue``: leave the jobs of all other queues.
        """

    def prune_keys(self, limit: int = 10_000, *, now: datetime | None = None) -> int:
        """Delete unique keys that no job holds any more, up to ``limit`` of each kind; return how many were deleted."""

    def elect(
        self, holder: UUID, ttl_seconds: float, *, loops: Mapping[str, float] | None = None, now: datetime | None = None
    ) -> Lease:
        """Acquire or renew the lead. ``loops``: seconds since each of the leader's loops last succeeded, for ``health``."""

    def resign(self, holder: UUID) -> None:
        """Give up the lead, so that another process acquires it at once."""

    def bury(self, workers: Mapping[UUID, int | None]) -> set[UUID]:
        """Mark workers as dead permanently: their beats are refused and their fetches return nothing.

        ``workers``: the beat with which each was last seen (``Heartbeat.beat``), or None to bury it whatever its beat is.
        A worker that has beaten since is spared, in the same step: no worker may be told that its beat was recorded and be
        buried nevertheless. Return the workers that were spared.
        """

    def disconnect(self, workers: Collection[UUID]) -> int:
        """End the connections of dead workers, where the store can identify them; return how many.

        Otherwise a claim that was sent before the death could commit after the rescue.
        """

    def deregister(self, workers: Collection[UUID]) -> None:
        """See ``Registrar.deregister``."""

    def wake(self, queues: Collection[str]) -> None:
        """Wake the workers that sleep on these queues."""

    def open_listener(self) -> Listener:
        """Open the listener on which the stager's thread waits."""
