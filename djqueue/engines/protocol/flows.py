"""Workflows and batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from djqueue.jobs.flows import Flow, FlowJob, FlowKind, FlowMember, InsertedFlow, Neighbour, NewFlow


class FlowStore(Protocol):
    """The verbs of flows. They join the caller's transaction where the engine is transactional, as those of an enqueue do.

    The effect of an end on the jobs that wait for it is not a verb: ``Fetcher.ack`` and every other verb that ends a job has it.
    Where a verb may not wait for locks that acks need, it leaves an event, which takes effect right after the commit or with
    the next ``Maintainer.settle``.
    """

    def insert_flow(
        self, flows: Sequence[NewFlow], jobs: Sequence[FlowJob], *, now: datetime | None = None
    ) -> InsertedFlow:
        """Store flows, their jobs and the dependencies, all or none.

        A job with an upstream that is not met is stored suspended; the others are available (or scheduled) and wake workers as
        ``insert`` does. A dependency on a stored job or flow that has ended is met, or stops the job, as if it ended now; one
        that does not exist counts as ``deleted``. Unique keys of jobs are not supported here: raise ``InvalidJob``. If
        ``whole_id`` names a flow that has finished or does not exist, raise ``InvalidJob`` and store nothing.
        """

    def close_flow(self, id: int, *, now: datetime | None = None) -> bool:
        """Let an open flow finish as soon as its jobs have ended; return False if there is no such flow that is open."""

    def flow(self, id: int) -> Flow | None:
        """Return a flow with what has ended by now."""

    def flows(
        self,
        *,
        kind: FlowKind | None = None,
        name: str | None = None,
        is_finished: bool | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Flow]:
        """Return flows that are no parts, newest first; ``before``: those with a lower id."""

    def flow_jobs(self, id: int, *, after: int = 0, limit: int = 1000) -> list[FlowMember]:
        """Return the next jobs of a flow and its parts, in the order of their ids, with ids above ``after``."""

    def upstreams(self, job_id: int) -> list[Neighbour]:
        """Return what a job waits for or has waited for, in the order of ids. A flow is not expanded into its jobs."""

    def downstreams(self, id: int, *, limit: int = 1000) -> list[Neighbour]:
        """Return the jobs that wait, or have waited, for a job or flow, in the order of their ids."""

    def results(self, flow_id: int, *, after: int = 0, limit: int = 1000) -> list[tuple[int, str, str | None]]:
        """Return id, state and the JSON of the result of a flow's jobs (not of its parts'), in the order of ids above ``after``."""

    def cancel_flow(self, id: int, *, by: str = "", reason: str = "", now: datetime | None = None) -> int:
        """Cancel the jobs of a flow and its parts that have not ended; return how many were cancelled or asked to stop.

        A suspended job of it may be cancelled a moment later. An open flow is closed.
        """

    def retry_flow(self, id: int, *, by: str = "", now: datetime | None = None) -> int:
        """Retry the jobs of a flow and its parts that were discarded or cancelled, and revive what they stopped; return how many."""

    def signal(self, job_id: int, payload: str, *, by: str = "", now: datetime | None = None) -> bool:
        """Complete a waiting signal job with ``payload`` (JSON) as its result; False if it does not wait. The first signal wins."""

    def step_here(self, id: int, claim: int, name: str, value: str) -> bool:
        """Store the JSON value of a finished step in the caller's transaction; False if the claim no longer holds."""
