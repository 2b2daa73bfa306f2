"""The records of workflows and batches that djqueue and an engine exchange.

A *flow* is a set of jobs that are counted together: a workflow, a batch, or a part of one (a group inside a workflow, or jobs by
which it has grown). A *dependency* says that a job, the downstream, waits for the end of a job or a flow, its upstream. Both have
ids from the same sequence as jobs. Users read "workflow" and "batch"; "flow" is the word of tables and engines for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from djqueue.jobs.records import NewJob

SIGNAL_TASK = "djqueue.workflows.signals.wait"
"""The task of jobs that ``FlowStore.signal`` completes. It is scheduled for the time until which a workflow waits for the signal; if
it runs, no signal arrived. Its job has no upstreams."""


class DependencyRule(StrEnum):
    """When a dependency is met. One that can no longer be met stops the downstream job: it is cancelled with the reason."""

    SUCCESS = "s"
    """The upstream completed."""
    ANY_END = "i"
    """The upstream ended in any way. Its result is passed on if it completed."""
    NO_RESULT = "d"
    """The upstream ended in any way, and its result is not passed on."""
    FAILURE = "f"
    """The upstream ended in another way than completed. Of a flow: one of its jobs did, as soon as the first does."""


class FlowKind(StrEnum):
    WORKFLOW = "workflow"
    BATCH = "batch"
    PART = "part"
    """Jobs of a workflow or batch, its *whole*, that are counted on their own."""


class OnFailure(StrEnum):
    """What the first job of a flow that does not complete does to the rest of the flow."""

    GO_ON = "go_on"
    """Nothing, beyond what the dependencies say."""
    CANCEL = "cancel"
    """The jobs of the flow that have not ended are cancelled."""


class UpstreamKind(StrEnum):
    JOB = "job"
    """A job of the same insert, by its place among its jobs, counted from 0. It comes before the downstream job."""
    FLOW = "flow"
    """A flow of the same insert, by its place among its flows, counted from 0."""
    ID = "id"
    """A job or flow that is stored already, by its id. It may have ended."""


class Upstream(NamedTuple):
    """One dependency of a new job."""

    kind: UpstreamKind
    at: int
    """A place or an id, as ``kind`` says."""
    rule: DependencyRule = DependencyRule.SUCCESS


class NewFlow(NamedTuple):
    """A flow that is to be stored."""

    kind: FlowKind = FlowKind.WORKFLOW
    name: str = ""
    """At most 255 characters."""
    on_failure: OnFailure = OnFailure.GO_ON
    whole: int | None = None
    """The place, among the flows of the same insert, of the flow that this one is a part of. It comes before this one."""
    whole_id: int | None = None
    """The id of a stored flow that this one is a part of. It must not have finished, unless it is that of a running job."""
    is_open: bool = False
    """The flow may grow, and does not finish before it is closed."""
    meta: str = "{}"
    unique_key: str | None = None
    """Two unfinished flows never hold the same key."""


class FlowJob(NamedTuple):
    """A job that is to be stored with its dependencies. Its name in the workflow is in its meta, under ``flow.name``."""

    job: NewJob
    flow: int | None = None
    """The place of the flow that counts it. None: no flow does."""
    upstreams: Sequence[Upstream] = ()


class InsertedFlow(NamedTuple):
    """The store's response to an insert of flows."""

    flow_ids: Sequence[int]
    """In the order of the flows."""
    job_ids: Sequence[int]
    """In the order of the jobs: ascending."""
    inserted_at: datetime
    was_duplicate: bool = False
    """An unfinished flow holds the unique key: nothing was stored, and ``flow_ids`` is the id of that flow."""


class Flow(NamedTuple):
    """A flow as stored, with its parts counted in."""

    id: int
    kind: FlowKind
    name: str
    on_failure: OnFailure
    whole_id: int | None
    is_open: bool
    total: int
    completed: int
    cancelled: int
    """Cancelled or deleted."""
    discarded: int
    inserted_at: datetime
    failed_at: datetime | None
    """When the first of its jobs ended in another way than completed."""
    finished_at: datetime | None
    meta: str
    unique_key: str | None = None


class FlowMember(NamedTuple):
    """A job of a flow, as light as a graph of it needs."""

    id: int
    name: str
    """Its name in the workflow, or an empty string."""
    flow_id: int
    """The flow or the part that counts it."""
    state: str
    queue: str
    task: str
    pending: int
    """How many of its dependencies are not met yet."""
    upstreams: Sequence[tuple[int, DependencyRule]]
    """The ids of the jobs and flows that it waits for, or waited for."""


class Neighbour(NamedTuple):
    """A job or flow at the other end of a dependency of a job."""

    id: int
    is_flow: bool
    name: str
    """Its name in the workflow; of a flow, the flow's name."""
    rule: DependencyRule
    state: str
    """Of a job, its state, or ``"deleted"``; of a flow ``"unfinished"``, ``"completed"`` or ``"failed"``."""
    result: str | None = None
    """The JSON of a completed job's result."""


class Settled(NamedTuple):
    """What ``settle`` did."""

    events: int = 0
    """How many events took effect."""
    counts: int = 0
    """How many rows of counts were added up."""
    is_full: bool = False
    """There may be more to settle at once."""
