"""The health data of a store. ``djqueue.maintenance.health`` evaluates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from djqueue.jobs.lists import WorkerStatus


@dataclass(frozen=True, slots=True)
class VacuumBlocker:
    """A session, replication slot or prepared transaction that prevents the database from removing deleted rows."""

    kind: str
    """session, replication slot or prepared transaction"""
    name: str
    age_seconds: float | None
    """How long it has existed. None: unknown."""
    age_transactions: int
    """The age, in transactions, of the oldest snapshot that it keeps."""


@dataclass(frozen=True, slots=True)
class QueueHealth:
    queue: str
    oldest_available_seconds: float | None
    is_paused: bool
    is_served: bool
    """Whether a live worker serves the queue."""


@dataclass(frozen=True, slots=True)
class ParkedJob:
    """A job that no worker can run in its current form."""

    id: int
    task: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """A property of a server that puts jobs at risk."""

    id: str
    """The id of the system check."""
    text: str
    hint: str
    is_fatal: bool = False
    """Whether workers refuse to run on this server."""
    keeps_jobs_out: bool = False
    """Whether no job can be enqueued. Workers still run, because finishing jobs may solve the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Facts about the server of a store."""

    server: str
    """The name and version of the server program."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further details for operators."""
    concerns: Sequence[Concern] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """Conditions that slow down a queue in a database. None: the value could not be read in time."""

    blockers: Sequence[VacuumBlocker] = ()
    dead_rows: int | None = None
    live_rows: int | None = None
    vacuumed_seconds: float | None = None
    """Seconds since the live table was last vacuumed. None: no vacuum is recorded."""
    is_autovacuum_on: bool = True
    table_bytes: int | None = None
    fetch_index_bytes: int | None = None
    history_bytes: int | None = None
    notification_usage: float | None = None
    """Used fraction of the notification queue, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether jobs are processed, as of one moment. A field is None if it could not be read in time."""

    queues: Sequence[QueueHealth] = ()
    parked: Sequence[ParkedJob] = ()
    """Some of the jobs that no worker can run in their current form."""
    workers: Sequence[WorkerStatus] = ()
    leader_seconds: float | None = None
    """How long the current leader has led. None: there is no leader."""
    loops: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the last run of each of the leader's services."""
    overdue_seconds: float | None = None
    """How long the oldest job that waits for the stager has been due. None: no job is due."""
    cron_entries: int = 0
    """Active entries of the crontab."""
    scheduler_seconds: float | None = None
    """Seconds since a scheduler last read the crontab. None: no scheduler has read it recently."""
    history_rows: int | None = None
    """The number of finished jobs. For a database, an estimate."""
    server: Inspection | None = None
    """Facts about the server, if the store has its own."""
    tables: TableHealth | None = None
    """Facts about the tables, if the store is a database."""
