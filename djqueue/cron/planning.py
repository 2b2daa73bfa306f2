"""Decide which nominal time of an entry to run at a moment.

A time is *late* when it is acted upon more than half a minute after it was due; up to then every time is on time,
whatever the entry's policy, so that a restart or a busy machine never costs a run. What is late is missed, and the
policy decides: ``skip`` leaves it out, ``latest`` runs the last one missed and leaves the others out, ``all`` runs
each one that is not older than the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from djqueue.cron.entry import CronEntry
from djqueue.cron.schedule import InvalidSchedule, Schedule

ON_TIME = timedelta(seconds=30)
_INSTANT = timedelta(microseconds=1)


class Step(NamedTuple):
    """The next nominal time to handle."""

    nominal_at: datetime
    next_at: datetime | None
    """The following nominal time. None: this is the last one."""
    skip: str = ""
    """Why it is skipped; empty if it runs."""
    missed_from: datetime | None = None
    """The first of the earlier times that are left out."""


def first_time(entry: CronEntry, schedule: Schedule) -> datetime | None:
    """Return the next nominal time of an entry, or None if it has no more."""
    if entry.definition.max_runs is not None and entry.runs >= entry.definition.max_runs:
        return None
    if entry.next_at is not None and (entry.last_nominal_at is None or entry.next_at > entry.last_nominal_at):
        return entry.next_at
    since = entry.planned_from
    if entry.last_nominal_at is not None:
        # After the clock was set back, the last nominal time may be in the future. It has run and does not run again.
        since = max(since, entry.last_nominal_at)
    if entry.definition.start_at is not None:
        since = max(since, entry.definition.start_at - _INSTANT)
    return _next(entry, schedule, since)


def times(entry: CronEntry, schedule: Schedule) -> Iterator[datetime]:
    """Yield the coming nominal times of an entry as it is defined now."""
    if schedule.is_reboot:
        return
    found = first_time(entry, schedule)
    limit = entry.definition.max_runs
    rest = None if limit is None else limit - entry.runs
    while found is not None and (rest is None or rest > 0):
        yield found
        found = _next(entry, schedule, found)
        rest = None if rest is None else rest - 1


def step(entry: CronEntry, schedule: Schedule, nominal: datetime, now: datetime) -> Step:
    """Decide about a nominal time that is due."""
    if now - nominal <= ON_TIME:
        return Step(nominal, _next(entry, schedule, nominal))
    policy = entry.definition.misfire
    if policy == "all":
        window = timedelta(seconds=entry.definition.misfire_window_seconds)
        if now - nominal <= window:
            return Step(nominal, _next(entry, schedule, nominal))
        horizon = now - window - _INSTANT
    else:
        horizon = now - ON_TIME - _INSTANT
    # The last of the times up to the horizon.
    last = _latest(entry, schedule, nominal, horizon) or nominal
    missed_from = None if last == nominal else nominal
    skip = "" if policy == "latest" else "missed"
    if policy == "latest" and _comes_on_time(entry, schedule, last, now):
        # The latest time is not late, so the times missed before it are left out.
        skip = "missed"
    return Step(last, _next(entry, schedule, last), skip, missed_from)


def _comes_on_time(entry: CronEntry, schedule: Schedule, last: datetime, now: datetime) -> bool:
    following = _next(entry, schedule, last)
    return following is not None and following <= now


def _next(entry: CronEntry, schedule: Schedule, after: datetime) -> datetime | None:
    try:
        found = schedule.next_after(after)
    except InvalidSchedule:
        return None
    end = entry.definition.end_at
    return None if end is not None and found > end else found


def _latest(entry: CronEntry, schedule: Schedule, after: datetime, until: datetime) -> datetime | None:
    end = entry.definition.end_at
    try:
        return schedule.latest(after, until if end is None else min(until, end))
    except InvalidSchedule:
        return None
