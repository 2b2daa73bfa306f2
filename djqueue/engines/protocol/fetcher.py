"""Claim jobs for a worker, and store their outcomes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from djqueue.engines.protocol.listener import Listener
from djqueue.engines.protocol.session import Session
from djqueue.jobs.control import CancelRequest
from djqueue.jobs.records import Ack, Acked, ClaimedJob, Rescued, TakenJob


class Fetcher(Session, Protocol):
    @property
    def is_partial(self) -> bool:
        """Whether the last fetch may have skipped jobs, so that fewer than ``limit`` does not mean an empty queue."""

    def fetch(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[ClaimedJob]:
        """Claim up to ``limit`` available jobs in run order; each has its attempt counted and its claim raised.

        Return no jobs to a worker that is not registered or is dead, and none from a paused queue. Fewer than ``limit``
        does not mean that there are no more. An engine may skip jobs that were put back for a while, but it returns an
        empty list only after it has searched for those too.
        """

    def ready(self, queues: Collection[str], *, is_hint: bool = False) -> set[str]:
        """Return those of these queues that have jobs to fetch; a paused queue is left out.

        Jobs that a fetch would skip, because another transaction has locked them, count. Costs about as much as one
        fetch, however many queues are given.

        ``is_hint``: a queue may be included without a search where the search would cost more than a fetch.
        """

    def take(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[TakenJob]:
        """Fetch jobs that run at most once: they are removed from the store, and ``ack`` writes their history.

        There is no claim to check and nothing to rescue. The ack of such a job carries it in ``taken`` and is always
        accepted.
        """

    def ack(self, acks: Sequence[Ack], *, now: datetime | None = None) -> Acked:
        """Store outcomes and say which were accepted. A stale claim changes nothing.

        A retryable or scheduled job without a delay is available at once. The follow-up of a finished job becomes
        available now, or with the next run of the stager. A job with a cancel request is cancelled instead of put back.

        Raise ``EngineRefused`` if one of the outcomes cannot be stored; none of the batch was.
        """

    def reclaim(self, worker: UUID, kept: Mapping[int, int], *, now: datetime | None = None) -> Rescued:
        """Put back jobs that the store holds for a live worker but that the worker does not know of; no attempt is spent.

        ``kept``: job id → claim of the jobs that the worker knows of. For a worker that missed the response to a fetch.
        """

    def cancel_requested(self, ids: Collection[int]) -> list[CancelRequest]:
        """Return the cancel requests for these jobs, which the calling worker executes."""

    def open_listener(self) -> Listener:
        """Open the listener on which the thread that fetches waits.

        Wake-ups may also tell the fetcher where its next fetch has to search.
        """
