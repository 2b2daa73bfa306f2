"""What crosses the seam between djqueue and an engine.

JSON travels as text: it is encoded once, where the user's values are checked, and decoded once, where they are used.
Durations travel as seconds, counted back from the moment of the write, because only the store's clock decides
anything and a worker's clock may be wrong.

The records of which there is one per job on the hot path are named tuples: an engine turns a row into one at a
tenth of the price of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from djqueue.jobs.states import JobState

NOBODY = UUID(int=0)
"""Who has claimed a job that nobody ever claimed."""


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
    """Not started by then: cancelled."""
    max_age: timedelta | None = None
    """``expires_at`` counted from the insert, by the store's clock."""
    meta: str = "{}"
    unique_key: str | None = None
    """No two live jobs hold the same key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueRule:
    """What a store does with new jobs whose unique key is held."""

    window: timedelta | None = None
    """The key is held at least this long from the insert, however the job ends, unless it is cancelled before it ran."""
    holds_completed: bool = False
    """A completed job goes on holding its key, for ``window`` or for as long as it is kept; one that failed does not."""
    replace: bool = False
    """A holder that waits takes the new job's arguments, priority, max_attempts, expiry and meta."""
    reschedule: bool = False
    """A holder that waits takes the new job's time; a new job without one is due at once."""
    follow_up: bool = False
    """While the holder executes, one more job is kept, suspended, with the newest values, until the holder has ended."""
    is_exclusive: bool = False
    """The caller raises an error for a duplicate. What the store does is the same; this is for those who answer for it."""


LIVE_ONLY = UniqueRule()
"""A duplicate is not stored and changes nothing."""


class InsertedJob(NamedTuple):
    """What the store says about a job that it was given."""

    id: int
    state: str
    inserted_at: datetime
    was_duplicate: bool = False
    """Another job holds the unique key; ``id`` and ``state`` are that job's, and no job was stored."""


class InsertedMany(NamedTuple):
    """What the store says about jobs that differ in their arguments only."""

    ids: Sequence[int]
    state: str
    inserted_at: datetime


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What ``enqueue_many`` did."""

    count: int
    """Jobs stored."""
    ids: Sequence[str]
    """Their ids, in the order of the items."""
    duplicates: int = 0
    """Items not stored because another job holds their unique key."""
    duplicate_of: Mapping[int, str] = field(default_factory=dict)
    """Position of such an item → the id of the job that holds its key."""


class ControlOutcome(StrEnum):
    """What became of somebody's wish to control a job."""

    CANCELLED = "cancelled"
    REQUESTED = "requested"
    """It executes; the request to end stands in its row, and its worker hears of it."""
    RETRIED = "retried"
    DISCARDED = "discarded"
    DELETED = "deleted"
    SKIPPED = "skipped"
    """Nothing was done, for the reason that is given."""


class Controlled(NamedTuple):
    """What became of one job that somebody wished to cancel, retry, discard or delete."""

    id: int
    outcome: ControlOutcome
    reason: str = ""
    """Why nothing was done, in a few words."""
    held_by: int | None = None
    """The live job that holds the unique key of one that could not be retried."""

    @property
    def is_done(self) -> bool:
        return self.outcome is not ControlOutcome.SKIPPED


class CancelRequest(NamedTuple):
    """Somebody wants a job to end that executes under this claim."""

    id: int
    claim: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs: those to which everything given applies."""

    states: tuple[JobState, ...] = ()
    """None given: all."""
    queue: str | None = None
    task: str | None = None
    task_prefix: str | None = None
    """How the path of the task begins."""
    task_part: str | None = None
    """A part of the path of the task. The case of ASCII letters does not matter."""
    worker: UUID | None = None
    """Who claimed the job last."""
    older_than: timedelta | None = None
    """Live jobs enqueued, finished ones finished, at least so long ago."""
    newer_than: timedelta | None = None
    """The same, less long ago."""


@dataclass(frozen=True, slots=True)
class Found:
    """How many jobs a filter finds."""

    count: int
    """At most the limit that was given."""
    last: int
    """No job of a higher id is among them."""


class Newest(NamedTuple):
    """Some jobs, the newest first."""

    jobs: Sequence[Job]
    before: int | None
    """Where to look on for older ones. None: there are none."""


class ListedJob(NamedTuple):
    """What a list shows of a job: no more of its arguments and errors than a line."""

    id: int
    state: str
    queue: str
    task: str
    priority: int
    attempt: int
    max_attempts: int
    attempted_by: UUID | None
    attempted_at: datetime | None
    inserted_at: datetime
    ready_at: datetime | None
    scheduled_at: datetime | None
    finished_at: datetime | None
    args: str = ""
    """The beginning of the JSON text."""
    kwargs: str = ""
    exception: str = ""
    """Of the last error."""
    message: str = ""
    """The beginning of what the last error says."""


class JobPage(NamedTuple):
    """One page of a list of jobs, newest first."""

    jobs: Sequence[ListedJob]
    newer: str = ""
    """The position for ``before`` that reads the page before this one; empty if this is the first, or the store cannot page back."""
    older: str = ""
    """The position for ``after`` that reads the next page, or continues the search; empty if there are no more jobs."""
    oldest: str = ""
    """The position for ``before`` that reads the last page; empty if this is the last, or the store cannot read from the end."""
    sorted_by: str = "id"
    """The column that orders the list."""
    is_first: bool = True
    is_cut: bool = False
    """The search took too long and was stopped: jobs that match are missing from this page."""
    is_slow: bool = False
    """Reading the page took so long that counting what matches is not worth a try."""
    looked_at: int | None = None
    """How many jobs the search looked at before it was stopped, if that is known. 0: too many match to show even the next."""


class Tally(NamedTuple):
    """How many jobs match, as far as that can be known quickly."""

    number: int
    """Exact, or a lower bound."""
    is_exact: bool = True
    estimate: int = 0
    """What the store believes instead of a lower bound; 0 if it has no estimate."""


class QueueRules(NamedTuple):
    """What operators decided about a queue."""

    name: str
    paused_at: datetime | None
    paused_by: str
    pause_reason: str


class WorkerStatus(NamedTuple):
    """One worker as the store knows it."""

    id: UUID
    name: str
    hostname: str
    pid: int
    queues: Mapping[str, int | None]
    concurrency: int
    silent_seconds: float
    """How long ago it last beat."""
    is_draining: bool
    is_dead: bool
    started_at: datetime | None = None
    """None where the store does not keep it."""
    died_at: datetime | None = None


class ClaimedJob(NamedTuple):
    """A job as fetched: everything its execution needs."""

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
    """When it became available; with ``id``, its place in its level of the queue."""

    @property
    def is_taken(self) -> bool:
        """Whether the job is in no table while it runs, and so runs at most once."""
        return isinstance(self, TakenJob)


class TakenJob(ClaimedJob):
    """A job of a queue with ``delivery="at_most_once"``: taken out of the store, and all that is left of it."""

    attempted_by: UUID = NOBODY
    unique_key: str | None = None
    """It was given up when the job was taken; one that is put back gets it again."""


class Ack(NamedTuple):
    """The outcome of one claim. ``state`` is where the job goes.

    ``claim`` is the fence: the store takes the ack only while the job is still executing under this claim.
    """

    id: int
    claim: int
    state: JobState
    started: float | None = None
    """When the function began, ``time.monotonic()`` of this process. None: it never did."""
    finished: float = 0.0
    """When it ended, ``time.monotonic()`` of this process."""
    result: str | None = None
    error: str | None = None
    """A JSON object to append to the job's errors."""
    delay: float = 0.0
    """Seconds until a retryable or scheduled job is due."""
    is_spent: bool = True
    """False gives the attempt back: handed back, snoozed, never begun."""
    note: str | None = None
    """A JSON object to merge into the meta of a job that is put back."""
    taken: TakenJob | None = None
    """The job itself, if the store has it no more. It is put back only if it never began."""


class Acked(NamedTuple):
    """What became of a batch of outcomes.

    One record for the whole batch: of plain jobs the worker only asks whether an id was accepted, and a record for each
    would be built to be thrown away. What concerns few jobs, such as flows or limits, gets a field of its own here.
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
    """One worker process, as it announces itself before its first fetch."""

    id: UUID
    name: str
    hostname: str
    pid: int
    queues: Mapping[str, int | None]
    """Queue name → its own concurrency (None: shares the worker's slots)."""
    concurrency: int


class Heartbeat(NamedTuple):
    """What a beat found: one row per known worker."""

    worker: UUID
    beat: int
    is_dead: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """What one run of the stager did."""

    count: int
    queues: Sequence[str]
    """Queues that got available jobs."""
    next_in: float | None
    """Seconds until the next scheduled or retryable job is due; None: there is none."""


@dataclass(frozen=True, slots=True)
class Rescued:
    """What one rescue did."""

    requeued: int = 0
    discarded: int = 0
    queues: Sequence[str] = ()
    """Queues that got available jobs."""
    cancelled: int = 0
    """Somebody had asked for it while they executed."""
    left: int = 0
    """Those that were passed over because another transaction holds them, or that were more than asked for."""

    @property
    def count(self) -> int:
        return self.requeued + self.discarded + self.cancelled


class PruneRule(NamedTuple):
    """Which finished jobs may go. Of several rules for a job, that of its task decides, then that of its queue."""

    state: JobState
    max_age: timedelta | None = None
    """What finished longer ago goes. None: nothing goes for its age."""
    max_count: int | None = None
    """Of the jobs under this rule, only so many of the newest stay."""
    queue: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one step of a pass over the history did."""

    count: int
    """Jobs that were deleted; in a dry run, that would have been."""
    place: Any
    """Where the next step goes on, in words of the engine. None: the pass is over."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads, by the store's clock."""

    is_held: bool
    term: int


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Live jobs of one queue by state, and how long the oldest available one has waited."""

    queue: str
    states: Mapping[str, int] = field(default_factory=dict)
    oldest_available_seconds: float | None = None
