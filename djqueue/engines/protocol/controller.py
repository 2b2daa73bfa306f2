"""Act on jobs and queues on behalf of operators and the application."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from djqueue.jobs.control import Controlled
from djqueue.jobs.states import JobState


class Controller(Protocol):
    """Verbs that take job ids return one record for each, in the same order.

    They skip a job whose state is not in ``only`` (if given) when the verb reaches it. ``by`` and ``reason`` are stored
    with the job or the queue.
    """

    def cancel(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        """Cancel waiting jobs, and request that executing jobs stop.

        The request is stored with the job, where ``cancel_requested`` finds it, and the listeners of workers are woken
        with ``cancel:<id>``. A job with a request never runs again: an outcome or a rescue that would put it back
        cancels it instead. If it completes, it is completed.
        """

    def retry(
        self, ids: Collection[int], *, only: Collection[JobState] = (), now: datetime | None = None
    ) -> list[Controlled]:
        """Make finished, scheduled and retryable jobs available.

        The number of attempts continues, with room for at least one more. A job whose unique key is held by a live job
        stays finished.
        """

    def discard(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        """Discard waiting jobs."""

    def delete(self, ids: Collection[int], *, only: Collection[JobState] = ()) -> list[Controlled]:
        """Delete waiting and finished jobs."""

    def pause(self, queue: str, *, by: str = "", reason: str = "", now: datetime | None = None) -> bool:
        """Stop fetching from a queue; return False if it was paused already. Executing jobs continue."""

    def resume(self, queue: str) -> bool:
        """Resume a paused queue; return False if it was not paused."""
