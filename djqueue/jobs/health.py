"""What a store shows of its health. ``djqueue.maintenance.health`` judges it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class VacuumBlocker:
    """Who keeps the store from cleaning up what was deleted."""

    kind: str
    """session, replication slot or prepared transaction"""
    name: str
    age_seconds: float | None
    """How long it has lasted; None: not known."""
    age_transactions: int
    """How many transactions ago what it may still see."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    name: str
    queues: Sequence[str]
    silent_seconds: float
    is_dead: bool


@dataclass(frozen=True, slots=True)
class QueueHealth:
    queue: str
    oldest_available_seconds: float | None
    is_paused: bool
    is_served: bool
    """Whether a living worker takes jobs from it."""


@dataclass(frozen=True, slots=True)
class ParkedJob:
    """A job that no worker can run as it stands."""

    id: int
    task: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """Something about a server that endangers jobs."""

    id: str
    """By which the system checks know it."""
    text: str
    hint: str
    is_fatal: bool = False
    """Whether a worker refuses to run there."""
    keeps_jobs_out: bool = False
    """Whether nothing can be enqueued. A worker runs there nevertheless: it may be what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the server of a store says about itself."""

    server: str
    """Which program, in which version."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What an operator would ask next."""
    concerns: Sequence[Concern] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """What slows down a queue that lives in the tables of a database. None: it could not be read in time."""

    blockers: Sequence[VacuumBlocker] = ()
    dead_rows: int | None = None
    live_rows: int | None = None
    vacuumed_seconds: float | None = None
    """Seconds since the live table was last vacuumed; None: never, as far as is known."""
    is_autovacuum_on: bool = True
    table_bytes: int | None = None
    fetch_index_bytes: int | None = None
    history_bytes: int | None = None
    notification_usage: float | None = None
    """Share of the notification queue that is full, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What tells whether jobs flow, as the store shows it at one moment. None: it could not be read in time."""

    queues: Sequence[QueueHealth] = ()
    parked: Sequence[ParkedJob] = ()
    """Some of those that no worker can run as they stand."""
    workers: Sequence[WorkerHealth] = ()
    leader_seconds: float | None = None
    """For how long the present leader has led; None: nobody leads."""
    loops: Mapping[str, float] = field(default_factory=dict)
    """Seconds since each of the leader's loops did its work."""
    overdue_seconds: float | None = None
    """For how long the oldest job that waits for the stager has been due; None: there is none."""
    cron_entries: int = 0
    """Active entries of the crontab."""
    scheduler_seconds: float | None = None
    """Seconds since a scheduler last looked at the crontab; None: none has for long."""
    history_rows: int | None = None
    """How many finished jobs are kept: of a database, an estimate."""
    server: Inspection | None = None
    """What the server says about itself, where the store has one of its own."""
    tables: TableHealth | None = None
    """What the database says about the tables, where the store is a database."""
