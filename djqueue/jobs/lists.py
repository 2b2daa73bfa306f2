"""The records of lists: which jobs are wanted, what is shown of jobs, queues and workers, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

from djqueue.jobs.records import Job
from djqueue.jobs.silence import SILENT_SECONDS
from djqueue.jobs.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """A selection of jobs. All given conditions must match."""

    states: tuple[JobState, ...] | None = None
    """None: all states. An empty tuple is refused: a list of states that came out empty does not mean every job."""
    queue: str | None = None
    task: str | None = None
    task_prefix: str | None = None
    """Prefix of the task's path."""
    task_part: str | None = None
    """A part of the path of the task. The case of ASCII letters does not matter."""
    worker: UUID | None = None
    """The worker that claimed the job last."""
    older_than: timedelta | None = None
    """Live jobs enqueued, and finished jobs finished, at least this long ago."""
    newer_than: timedelta | None = None
    """The same, but less than this long ago."""

    def __post_init__(self) -> None:
        if self.states is not None and not self.states:
            raise ValueError(f"Invalid states {self.states!r}: name at least one state, or leave states out for all.")


@dataclass(frozen=True, slots=True)
class Found:
    """The number of jobs that match a filter."""

    count: int
    """The count, at most the given limit."""
    last: int
    """No job of a higher id is among them."""


class Newest(NamedTuple):
    """One page of jobs, newest first."""

    jobs: Sequence[Job]
    before: int | None
    """Where the next page, with older jobs, begins. None: this is the last page."""


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


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The number of live jobs of one queue per state, and how long the oldest available one has waited."""

    queue: str
    states: Mapping[str, int] = field(default_factory=dict)
    oldest_available_seconds: float | None = None


class QueueRules(NamedTuple):
    """The rules that operators have set for a queue."""

    name: str
    paused_at: datetime | None
    paused_by: str
    pause_reason: str


class WorkerStatus(NamedTuple):
    """A worker as stored."""

    id: UUID
    name: str
    hostname: str
    pid: int
    queues: Mapping[str, int | None]
    """The queues that it serves, each with its own concurrency or None."""
    concurrency: int
    silent_seconds: float
    """Time since its last heartbeat."""
    is_draining: bool
    is_dead: bool
    started_at: datetime | None = None
    """None where the store does not keep it."""
    died_at: datetime | None = None

    @property
    def state(self) -> Literal["alive", "draining", "silent", "dead"]:
        """The state as shown. Only the leader, which watches the heartbeats, decides that a worker is dead."""
        if self.is_dead:
            return "dead"
        if self.silent_seconds > SILENT_SECONDS:
            return "silent"
        return "draining" if self.is_draining else "alive"


def served_queues(stored: object) -> dict[str, int | None]:
    """Return the queues of a stored worker. Users can edit it, so a list and other values are accepted too."""
    if isinstance(stored, Mapping):
        return {str(name): limit if isinstance(limit, int) else None for name, limit in stored.items()}
    return dict.fromkeys(map(str, stored)) if isinstance(stored, list) else {}
