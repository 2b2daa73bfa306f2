"""A crontab entry as written in code, as a definition, and as stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, Self, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from djqueue.cron.schedule import REBOOT, InvalidSchedule, Schedule
from djqueue.exceptions import InvalidCron
from djqueue.jobs.durations import Duration, parse_duration

Misfire = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip", "queue", "cancel_running"]
MISFIRES: tuple[str, ...] = ("skip", "latest", "all")
OVERLAPS: tuple[str, ...] = ("allow", "skip", "queue", "cancel_running")
MAX_NAME = 200
MAX_WINDOW = timedelta(days=366)
MAX_JITTER = timedelta(days=1)
_MAX_RUNS = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class CronDefinition:
    """The definition of an entry, without its history."""

    task: str
    expression: str
    timezone: str = "UTC"
    args: Sequence[Any] = field(default=(), hash=False)
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    queue: str = ""
    """Empty: the task's queue."""
    priority: int | None = None
    """None: the task's priority."""
    misfire: str = "latest"
    misfire_window_seconds: int = 3600
    overlap: str = "allow"
    jitter_seconds: int = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    max_runs: int | None = None

    def problem(self) -> str:
        """Return what is wrong with the definition, or an empty string. Does not check the task and the queue."""
        try:
            schedule = Schedule(self.expression, self.timezone)
            if not schedule.is_reboot and self.end_at is not None:
                start = self.start_at or datetime(2000, 1, 1, tzinfo=UTC)
                if schedule.next_after(start - timedelta(microseconds=1)) > self.end_at:
                    return f"{self.expression!r} never comes true before the end, {self.end_at}."
        except InvalidSchedule as error:
            return str(error)
        except TypeError:
            return "start and end are times with a time zone."
        return self._choice_problem() or self._number_problem()

    def _choice_problem(self) -> str:
        if self.misfire not in MISFIRES:
            return f"Invalid misfire {self.misfire!r:.80}: use {', '.join(MISFIRES)}."
        if self.overlap not in OVERLAPS:
            return f"Invalid overlap {self.overlap!r:.80}: use {', '.join(OVERLAPS)}."
        for name in ("start_at", "end_at"):
            at = getattr(self, name)
            if at is not None and (not isinstance(at, datetime) or at.tzinfo is None or not 1970 <= at.year < 9000):
                return f"{name.removesuffix('_at')} is a time with a time zone, not {at!r:.80}."
        return ""

    def _number_problem(self) -> str:
        for name, low, high in (
            ("misfire_window_seconds", 1, int(MAX_WINDOW.total_seconds())),
            ("jitter_seconds", 0, int(MAX_JITTER.total_seconds())),
            ("max_runs", 1, _MAX_RUNS),
            ("priority", -100, 100),
        ):
            value = getattr(self, name)
            if value is None and name in ("max_runs", "priority"):
                continue
            if type(value) is not int or not low <= value <= high:
                return f"{name} is a whole number from {low} to {high}, not {value!r:.80}."
        return ""

    def as_json(self) -> dict[str, Any]:
        """Return the definition as plain JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("start_at", "end_at"):
            if values[name] is not None:
                values[name] = values[name].astimezone(UTC).isoformat()
        return {**values, "args": list(self.args), "kwargs": dict(self.kwargs)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read a definition that ``as_json`` wrote. Unknown keys of other versions are ignored."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for name in ("start_at", "end_at"):
            if isinstance(known.get(name), str):
                known[name] = datetime.fromisoformat(known[name])
        if isinstance(known.get("args"), list):
            known["args"] = tuple(known["args"])
        return cls(**known)

    def local(self, at: datetime) -> str:
        """Write a time as a clock of the entry's zone shows it."""
        with suppress(LookupError, ValueError, OSError):
            at = at.astimezone(ZoneInfo(self.timezone))
        return f"{at:%Y-%m-%d %H:%M:%S %Z}"

    def differences(self, other: CronDefinition) -> list[str]:
        """Name the fields in which the two differ."""
        mine, others = self.as_json(), other.as_json()
        return [name for name in mine if mine[name] != others[name]]

    def merged(self, base: CronDefinition, changed: CronDefinition) -> CronDefinition:
        """Apply the changes from ``base`` to ``changed``, except to fields that already differ from ``base`` here."""
        mine = set(self.differences(base))
        changes = {name: getattr(changed, name) for name in changed.differences(base) if name not in mine}
        return replace(self, **changes)


@dataclass(frozen=True)
class Cron:
    """One entry of a task: ``@task(cron=[Cron("0 6 * * mon", args=[1]), Cron("@hourly", name="hourly-report")])``."""

    expression: str
    args: Sequence[Any] = field(default=(), hash=False, kw_only=True)
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False, kw_only=True)
    name: str = field(default="", kw_only=True)
    """Empty: the task's path; of several entries of a task, with ``:2``, ``:3`` … behind it."""
    timezone: str = field(default="", kw_only=True)
    """Empty: the ``timezone`` of ``@task``, and without it the project's TIME_ZONE."""
    queue_name: str = field(default="", kw_only=True)
    priority: int | None = field(default=None, kw_only=True)
    misfire: Misfire = field(default="latest", kw_only=True)
    """Which times that passed while no scheduler was running are made up for: none, the latest, or all in the window."""
    misfire_window: Duration = field(default=timedelta(hours=1), kw_only=True)
    """With ``misfire="all"``: how far back missed times are made up for, from 1 second to 366 days."""
    overlap: Overlap = field(default="allow", kw_only=True)
    """While the previous job of the entry is unfinished: run in parallel, skip this time, wait for its end, or cancel it."""
    jitter: Duration = field(default=timedelta(0), kw_only=True)
    """Each run is delayed by a random time up to this long, at most 1 day."""
    start: datetime | None = field(default=None, kw_only=True)
    end: datetime | None = field(default=None, kw_only=True)
    max_runs: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, low, high, limits in (
            ("misfire_window", timedelta(seconds=1), MAX_WINDOW, "from 1 second to 366 days"),
            ("jitter", timedelta(0), MAX_JITTER, "at most 1 day"),
        ):
            value: object = getattr(self, name)
            try:
                duration: timedelta | None = parse_duration(value)
            except ValueError:
                duration = None
            if duration is None or not low <= duration <= high:
                raise InvalidCron(
                    f"Invalid {name} {value!r:.120} in Cron: use seconds, a timedelta or a text like '90s' or '2 hours',"
                    f" {limits}."
                )
            object.__setattr__(self, name, duration)

    def definition(self, task: str, timezone: str) -> CronDefinition:
        """Return the definition for a task. ``timezone`` applies if the entry does not set one."""
        return CronDefinition(
            task=task,
            expression=self.expression,
            timezone=self.timezone or timezone,
            args=self.args,
            kwargs=self.kwargs,
            queue=self.queue_name,
            priority=self.priority,
            misfire=self.misfire,
            misfire_window_seconds=_seconds(self.misfire_window),
            overlap=self.overlap,
            jitter_seconds=_seconds(self.jitter),
            start_at=self.start,
            end_at=self.end,
            max_runs=self.max_runs,
        )


def _seconds(duration: Duration) -> int:
    return int(cast(timedelta, duration).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class CronEntry:
    """An entry as stored."""

    id: int
    name: str
    definition: CronDefinition
    revision: int
    """Raised by each change, pause and resume, so that a scheduler which has read an older one is refused."""
    code: CronDefinition | None = None
    """What the code said when it was last read. None: the entry was made in the database."""
    created_at: datetime
    created_by: str = ""
    changed_at: datetime
    changed_by: str = ""
    paused_at: datetime | None = None
    paused_by: str = ""
    pause_reason: str = ""
    disabled_at: datetime | None = None
    """When it was removed from the code."""
    finished_at: datetime | None = None
    """When the entry had its last run, because it reached ``end_at`` or ``max_runs``."""
    planned_from: datetime
    """No time before this is due: when the entry was created, changed or resumed."""
    next_at: datetime | None = None
    """The next nominal time, if it is already planned."""
    last_nominal_at: datetime | None = None
    last_outcome: str = ""
    runs: int = 0

    @property
    def drift(self) -> list[str]:
        """Return the names of the fields that were changed in the database and differ from the code."""
        return [] if self.code is None else self.definition.differences(self.code)

    @property
    def is_reboot(self) -> bool:
        return self.definition.expression.strip().lower() == REBOOT

    @property
    def state(self) -> str:
        if self.disabled_at is not None:
            return "disabled"
        if self.paused_at is not None:
            return "paused"
        return "active" if self.finished_at is None else "finished"


class Declaration(NamedTuple):
    """The entries in the code that a scheduler runs."""

    id: UUID
    """The id of the scheduler."""
    name: str
    entries: Mapping[str, str]
    """Name → fingerprint of the definition in the code."""


class SeenDeclaration(NamedTuple):
    """The declaration of a scheduler, as stored."""

    id: UUID
    name: str
    entries: Mapping[str, str]
    started_at: datetime
    """When the scheduler first declared its entries."""
    silent: timedelta
    """Time since its last declaration."""


class Due(NamedTuple):
    """The due entries at a moment of the store's clock."""

    now: datetime
    entries: Sequence[CronEntry]
    """The entries that are due or have no next time yet."""
    next_in: float | None
    """Seconds until the next entry is due. None: no entry has a next time."""


class NewTick(NamedTuple):
    """One nominal time of an entry, which is handled exactly once."""

    entry: CronEntry
    """The entry as it was read. The store accepts the tick only if the entry has not changed since."""
    nominal_at: datetime
    next_at: datetime | None
    """The following nominal time. None: this is the last one."""
    skip: str = ""
    """Why no job was enqueued."""
    missed_from: datetime | None = None
    """The first of the earlier times that were missed and are not made up for."""


class Ticked(NamedTuple):
    """The store's response to a tick."""

    outcome: Literal["enqueued", "skipped", "held", "stale"]
    """Held: the previous job still runs and this one waits for it. Stale: another scheduler enqueued it, or the entry has changed."""
    reason: str = ""
    job_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CronTick:
    """One item of an entry's history."""

    nominal_at: datetime | None
    """None: it was run by hand."""
    at: datetime
    outcome: str
    reason: str = ""
    job_id: int | None = None
    missed_from: datetime | None = None
    by: str = ""
