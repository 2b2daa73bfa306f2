"""The records that djqueue and an engine exchange.

JSON is passed as text: it is encoded once, where the user's values are checked, and decoded once, where they are used.
Durations travel as seconds, counted back from the moment of the write, because only the store's clock decides
anything and a worker's clock may be wrong.

The records that exist once per job on the hot path are named tuples: an engine makes one from a row in a tenth of the time
of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from djqueue.jobs.states import JobState

NOBODY = UUID(int=0)
"""``attempted_by`` of a job that was never claimed."""


class NewJob(NamedTuple):
    """A job as enqueued: checked, encoded, not stored yet."""

    task: str
    args: str = "[]"
    kwargs: str = "{}"
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 20
    scheduled_at: datetime | None = None
    """Not before this time. None: at once, or after ``delay``."""
    delay: timedelta | None = None
    """Not before this long after the insert, by the store's clock."""
    expires_at: datetime | None = None
    """The job is cancelled if it has not started by then."""
    max_age: timedelta | None = None
    """``expires_at`` counted from the insert, by the store's clock."""
    meta: str = "{}"
    unique_key: str | None = None
    """Two live jobs never hold the same key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueRule:
    """How a store handles new jobs whose unique key is held."""

    window: timedelta | None = None
    """The key is held for at least this long from the insert, however the job ends, unless it is cancelled before it ran."""
    holds_completed: bool = False
    """A completed job keeps holding its key, for ``window`` or for as long as it is kept. A failed job releases it."""
    replace: bool = False
    """A waiting holder gets the new job's arguments, priority, max_attempts, expiry and meta."""
    reschedule: bool = False
    """A waiting holder gets the new job's time to run; if the new job has none, the holder is due at once."""
    follow_up: bool = False
    """While the holder executes, one more job is kept, suspended, with the newest values, until the holder has ended."""
    is_exclusive: bool = False
    """The caller raises an error for a duplicate. The store behaves the same; code that reports duplicates reads this."""


LIVE_ONLY = UniqueRule()
"""A duplicate is not stored and changes nothing."""


class InsertedJob(NamedTuple):
    """The store's response to an insert of one job."""

    id: int
    state: str
    inserted_at: datetime
    was_duplicate: bool = False
    """Another job holds the unique key: no job was stored, and ``id`` and ``state`` are those of the holder."""


class InsertedMany(NamedTuple):
    """The store's response to an insert of jobs that differ only in their arguments."""

    ids: Sequence[int]
    state: str
    inserted_at: datetime


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of ``enqueue_many``."""

    count: int
    """Jobs stored."""
    ids: Sequence[str]
    """Their ids, in the order of the items."""
    duplicates: int = 0
    """Items not stored because another job holds their unique key."""
    duplicate_of: Mapping[int, str] = field(default_factory=dict)
    """Position of such an item → the id of the job that holds its key."""


class ClaimedJob(NamedTuple):
    """A fetched job, with everything that its execution needs."""

    id: int
    claim: int
    queue: str
    task: str
    args: str
    kwargs: str
    attempt: int
    max_attempts: int
    priority: int
    inserted_at: datetime
    started_at: datetime | None
    scheduled_at: datetime | None
    expires_at: datetime | None
    attempted_at: datetime
    errors: str
    meta: str
    ready_at: datetime
    """When it became available. With ``id``, this determines its order among jobs of the same priority."""
    flow_id: int | None = None
    """The workflow or batch that counts this job, or the part of one."""
    is_awaited: bool | None = None
    """Whether other jobs waited for this one when it was claimed."""

    @property
    def is_taken(self) -> bool:
        """Whether the job was deleted from the store when it was fetched, so that it runs at most once."""
        return isinstance(self, TakenJob)


class TakenJob(ClaimedJob):
    """A job of a queue with ``delivery="at_most_once"``: the only copy after the job was deleted from the store."""

    attempted_by: UUID = NOBODY
    unique_key: str | None = None
    """The unique key was released when the job was fetched. A job that is put back takes it again."""


class Ack(NamedTuple):
    """The outcome of one claim. ``state`` is the job's next state.

    ``claim`` is the fence: the store takes the ack only while the job is still executing under this claim.
    """

    id: int
    claim: int
    state: JobState
    started: float | None = None
    """When the function started, by ``time.monotonic()`` of this process. None: it did not start."""
    finished: float = 0.0
    """When it ended, by ``time.monotonic()`` of this process."""
    result: str | None = None
    error: str | None = None
    """A JSON object to append to the job's errors."""
    delay: float = 0.0
    """Seconds until a retryable or scheduled job is due."""
    is_spent: bool = True
    """False: the attempt does not count, because the job was handed back, was snoozed or never started."""
    note: str | None = None
    """A JSON object to merge into the meta of a job that is put back."""
    taken: TakenJob | None = None
    """The job itself, if the store no longer has it. It is put back only if it never started."""
    flow_id: int | None = None
    """Of the claim. The store uses this and the next field to choose the statement; it does not rely on them."""
    is_awaited: bool | None = None


class Acked(NamedTuple):
    """The result of storing a batch of outcomes.

    One record for the whole batch: for plain jobs the worker needs only whether an id was accepted, so a record per job would
    be wasted. Data that concerns few jobs, such as flows or limits, gets its own field here.
    """

    accepted: AbstractSet[int]
    """The ids whose outcome is stored. The claims of the others were stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as stored, live or finished."""

    id: int
    state: JobState
    queue: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    priority: int
    attempt: int
    max_attempts: int
    claim: int
    attempted_by: UUID | None
    attempted_at: datetime | None
    inserted_at: datetime
    scheduled_at: datetime | None
    ready_at: datetime | None
    expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    errors: list[dict[str, Any]]
    result: Any
    meta: dict[str, Any]
    unique_key: str | None
    cancel_request: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker process, as it registers before its first fetch."""

    id: UUID
    name: str
    hostname: str
    pid: int
    queues: Mapping[str, int | None]
    """Queue name → its own concurrency (None: shares the worker's slots)."""
    concurrency: int


class Heartbeat(NamedTuple):
    """The result of a heartbeat: one row per known worker."""

    worker: UUID
    beat: int
    is_dead: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of one run of the stager."""

    count: int
    queues: Sequence[str]
    """Queues that got available jobs."""
    next_in: float | None
    """Seconds until the next scheduled or retryable job is due; None: there is none."""


@dataclass(frozen=True, slots=True)
class Rescued:
    """The result of one rescue."""

    requeued: int = 0
    discarded: int = 0
    queues: Sequence[str] = ()
    """Queues that got available jobs."""
    cancelled: int = 0
    """Jobs for which a cancellation was requested while they executed."""
    left: int = 0
    """Jobs that were skipped because another transaction locks them, or because they exceeded the limit."""

    @property
    def count(self) -> int:
        return self.requeued + self.discarded + self.cancelled


class PruneRule(NamedTuple):
    """Which finished jobs are deleted. A rule for the job's task takes precedence, then one for its queue."""

    state: JobState
    max_age: timedelta | None = None
    """Delete jobs that finished longer ago than this. None: no limit by age."""
    max_count: int | None = None
    """Keep only this many of the newest jobs under this rule."""
    queue: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of one step of a pass over the history."""

    count: int
    """Number of deleted jobs; in a dry run, of jobs that would be deleted."""
    place: Any
    """Position at which the next step continues; only the engine interprets it. None: the pass is complete."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The current leader, by the store's clock."""

    is_held: bool
    term: int
