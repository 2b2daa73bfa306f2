"""The filters and the search of the lists of jobs, as what an engine is asked for. Their choices cost no scan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from djqueue.admin.formatting import STATE_LABELS
from djqueue.admin.sources import Source, bare
from djqueue.admin.task_registry import task_names
from djqueue.jobs.encoding import is_storable
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState

PARAMETERS = ("state", "queue", "task", "within")
SPANS: dict[str, tuple[timedelta, Any]] = {
    "minute": (timedelta(minutes=1), _("Last minute")),
    "hour": (timedelta(hours=1), _("Last hour")),
    "day": (timedelta(days=1), _("Last 24 hours")),
    "week": (timedelta(days=7), _("Last 7 days")),
    "month": (timedelta(days=30), _("Last 30 days")),
}


class Filter(NamedTuple):
    """One filter beside a list."""

    name: str
    """Of its parameter."""
    title: Any
    choices: list[tuple[str, Any]]
    """Value and label; an empty value stands for all."""


def filters(source: Source, params: Mapping[str, str], *, is_finished: bool) -> list[Filter]:
    states = FINAL_STATES if is_finished else LIVE_STATES
    queues, tasks = source.queue_names(params.get("queue")), sorted({*task_names(), params.get("task", "")} - {""})
    every = [("", gettext("All"))]
    return [
        Filter("state", gettext("state"), every + [(state.value, STATE_LABELS[state]) for state in states]),
        Filter("queue", gettext("queue"), every + [(name, name) for name in queues]),
        # Only the tasks that this process knows: finding the names that the store holds would mean reading all jobs.
        Filter("task", gettext("task"), every + [(name, name) for name in tasks]),
        Filter(
            "within",
            gettext("time finished") if is_finished else gettext("time enqueued"),
            every + [(name, label) for name, (_span, label) in SPANS.items()],
        ),
    ]


def wanted(params: Mapping[str, str], term: str, *, is_finished: bool) -> JobFilter | None:
    """Return what the parameters and the search term ask for; None if no job of the list can match."""
    states = FINAL_STATES if is_finished else LIVE_STATES
    state, term = params.get("state", ""), term.strip()
    if (state and state not in states) or not all(map(is_storable, (term, *params.values()))):
        return None
    if job_id(term) is not None:  # a job with this id would have been shown at once
        return None
    jobs = JobFilter(
        states=(JobState(state),) if state else tuple(states),
        queue=params.get("queue") or None,
        task=params.get("task") or None,
        newer_than=SPANS.get(params.get("within", ""), (None,))[0],
    )
    if (worker := worker_id(term)) is not None:
        return replace(jobs, worker=worker)
    return replace(jobs, task_part=term or None)


def job_id(term: str) -> int | None:
    term = bare(term.strip().removeprefix("#"))
    if term.isascii() and term.isdigit() and len(term) < 20 and int(term) < 2**63:
        return int(term)
    return None


def worker_id(term: str) -> UUID | None:
    try:
        return UUID(term) if len(term) >= 32 else None
    except ValueError:
        return None
