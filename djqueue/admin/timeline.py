"""What happened to a job, in order, as far as its row tells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils.translation import gettext

from djqueue.admin.formatting import STATE_LABELS, duration, exact, parse_time
from djqueue.jobs.records import Job
from djqueue.jobs.states import JobState

CANCELLED = "djqueue.exceptions.Cancel"
"""What stands as the exception in the errors of a job that was cancelled."""
DISCARDED = "djqueue.exceptions.Discard"


@dataclass(frozen=True)
class Event:
    at: datetime
    kind: str
    """Names the colour of its dot."""
    title: str
    note: str = ""
    gap: str = ""
    """How long after the event before it."""
    is_future: bool = False

    @property
    def exact(self) -> str:
        return exact(self.at)


def timeline(job: Job, now: datetime) -> list[Event]:
    """List the events of a job with the time between them.

    A row keeps its first start, each failed attempt and the newest of everything else, not every step.
    """
    events = [Event(job.inserted_at, "scheduled", gettext("Enqueued"))]
    due = job.scheduled_at
    if due is not None and due != job.inserted_at and (due <= now or job.finished_at is None):
        title = gettext("Due") if due <= now else gettext("Will be due")
        events.append(Event(due, "scheduled", title, is_future=due > now))
    if job.ready_at is not None:
        events.append(Event(job.ready_at, "available", gettext("Available to workers")))
    started = job.attempted_at
    if started is not None:
        title = gettext("Attempt %(number)d started") % {"number": job.attempt}
        if job.attempt == 0:
            # Given back: claimed once, and the attempt not spent.
            title = gettext("Claimed by a worker")
        events.append(Event(started, "executing", title))
    # The first attempt starts a few milliseconds after its claim, which is shown as its start already.
    if job.started_at is not None and (started is None or job.started_at < started or job.attempt != 1):
        events.append(Event(job.started_at, "executing", gettext("First started")))
    errors: Any = job.errors  # a row can be edited by hand
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, dict) and (at := parse_time(error.get("at"))):
            if ended_by(error) is not None:
                continue  # stands there as the end of the job
            title = gettext("Attempt %(number)s failed") % {"number": error.get("attempt", "?")}
            events.append(Event(at, "retryable", title, note=summary(error)))
    if job.expires_at is not None and job.finished_at is None:
        events.append(
            Event(job.expires_at, "cancelled", gettext("Expires unless started"), is_future=job.expires_at > now)
        )
    if job.finished_at is not None:
        try:
            label = str(STATE_LABELS[JobState(job.state)]).capitalize()
        except ValueError:
            label = job.state
        events.append(Event(job.finished_at, job.state, label))
    # Sorted by time; of two at the same moment the later kind of the life cycle stays second.
    events.sort(key=lambda event: event.at)
    return [
        event
        if before is None
        else replace(event, gap=gettext("+ %(duration)s") % {"duration": duration(event.at - before.at)})
        for before, event in zip([None, *events], events, strict=False)
    ]


def ended_by(error: dict[str, object]) -> str | None:
    """Return who ended the job on purpose, or "" if that is unknown; None if an attempt failed."""
    name = str(error.get("by") or "")
    if error.get("exception") == CANCELLED:
        return name
    # A task that discards itself has run, and its errors name no one.
    return name if error.get("exception") == DISCARDED and "by" in error else None


def summary(error: dict[str, object]) -> str:
    """Say in one line what failed."""
    exception = str(error.get("exception", "")).rpartition(".")[2]
    message = str(error.get("message", "")).strip().splitlines()
    return ": ".join(part for part in (exception, message[0][:300] if message else "") if part)
