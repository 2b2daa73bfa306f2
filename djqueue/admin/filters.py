"""The filters beside the lists, and what the search takes. Their choices cost no scan.

``queryset`` is for the tables, ``narrow`` for a store behind an engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from djqueue.admin.known import known_tasks
from djqueue.admin.stores import bare, store_of
from djqueue.admin.words import STATE_LABELS
from djqueue.jobs.records import JobFilter
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState
from djqueue.models import AbstractJob, Job

PARAMETERS = ("state", "queue", "task", "within")
_WITHOUT_READY_AT = (JobState.SCHEDULED, JobState.RETRYABLE, JobState.SUSPENDED)


class Filter(admin.SimpleListFilter, ABC):
    is_impossible = False
    """Whether what was chosen is nothing that a job of this list can be."""

    @abstractmethod
    def narrow(self, jobs: JobFilter) -> JobFilter:
        """Add what was chosen to what an engine is asked for."""


class StateFilter(Filter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        states = LIVE_STATES if model_admin.model is Job else FINAL_STATES
        return [(state.value, STATE_LABELS[state]) for state in states]

    @property
    def is_impossible(self) -> bool:  # type: ignore[override]
        return self.value() not in (None, "", *dict(self.lookup_choices))

    def queryset(self, request: HttpRequest, queryset: QuerySet[AbstractJob]) -> QuerySet[AbstractJob]:
        if not (state := self.value()):
            return queryset
        queryset = queryset.filter(state=state)
        if queryset.model is Job:
            # Says the same again, in words that the partial indexes understand. About states the planner knows
            # nothing, by our own wish (see migration 0001); about this it does.
            queryset = queryset.filter(ready_at__isnull=state in _WITHOUT_READY_AT)
        return queryset

    def narrow(self, jobs: JobFilter) -> JobFilter:
        if not (state := self.value()):
            return jobs
        return replace(jobs, states=(JobState(state),))


class QueueFilter(Filter):
    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, name) for name in store_of(request).queue_names(self.value())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AbstractJob]) -> QuerySet[AbstractJob]:
        return queryset.filter(queue=self.value()) if self.value() else queryset

    def narrow(self, jobs: JobFilter) -> JobFilter:
        return replace(jobs, queue=self.value() or None)


class TaskFilter(Filter):
    """By the tasks that this process knows: which names the tables hold could only be found by reading them."""

    title = _("task")
    parameter_name = "task"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        names = set(known_tasks())
        if value := self.value():
            names.add(value)
        return [(name, name) for name in sorted(names)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AbstractJob]) -> QuerySet[AbstractJob]:
        return queryset.filter(task=self.value()) if self.value() else queryset

    def narrow(self, jobs: JobFilter) -> JobFilter:
        return replace(jobs, task=self.value() or None)


class TimeFilter(Filter):
    parameter_name = "within"
    field: ClassVar[str]
    spans: ClassVar[dict[str, tuple[timedelta, Any]]] = {
        "minute": (timedelta(minutes=1), _("Last minute")),
        "hour": (timedelta(hours=1), _("Last hour")),
        "day": (timedelta(days=1), _("Last 24 hours")),
        "week": (timedelta(days=7), _("Last 7 days")),
        "month": (timedelta(days=30), _("Last 30 days")),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, label) for name, (_span, label) in self.spans.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AbstractJob]) -> QuerySet[AbstractJob]:
        if (span := self.spans.get(self.value() or "")) is None:
            return queryset
        return queryset.filter(**{f"{self.field}__gte": timezone.now() - span[0]})

    def narrow(self, jobs: JobFilter) -> JobFilter:
        span = self.spans.get(self.value() or "")
        return replace(jobs, newer_than=None if span is None else span[0])


class InsertedFilter(TimeFilter):
    title = _("time enqueued")
    field = "inserted_at"


class FinishedFilter(TimeFilter):
    title = _("time finished")
    field = "finished_at"


def search(jobs: JobFilter, term: str) -> JobFilter:
    """Narrow a filter to what somebody typed, unless it is the id of a job."""
    term = term.strip()
    if (worker := worker_id(term)) is not None:
        return replace(jobs, worker=worker)
    # An engine knows how the path of a task begins; the list shows the short name.
    paths = [path for path in known_tasks() if path.rpartition(".")[2].startswith(term)] if term else []
    if len(paths) == 1:
        return replace(jobs, task_prefix=paths[0])
    return replace(jobs, task_prefix=term or None)


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
