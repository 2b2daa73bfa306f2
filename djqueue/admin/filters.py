"""The filters beside the lists. Their choices cost no scan."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from djqueue.admin.base import backends, database
from djqueue.admin.known import known_tasks
from djqueue.admin.words import STATE_LABELS
from djqueue.engines.postgres.reading import ReadTooSlow, queue_names, time_limit
from djqueue.models import AbstractJob, Job, Queue
from djqueue.states import FINAL_STATES, LIVE_STATES, JobState

_CHOICES_LIMIT = timedelta(milliseconds=200)
PARAMETERS = ("state", "queue", "task", "within")
_WITHOUT_READY_AT = (JobState.SCHEDULED, JobState.RETRYABLE, JobState.SUSPENDED)


class StateFilter(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        states = LIVE_STATES if model_admin.model is Job else FINAL_STATES
        return [(state.value, STATE_LABELS[state]) for state in states]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AbstractJob]) -> QuerySet[AbstractJob]:
        if not (state := self.value()):
            return queryset
        queryset = queryset.filter(state=state)
        if queryset.model is Job:
            # Says the same again, in words that the partial indexes understand. About states the planner knows
            # nothing, by our own wish (see migration 0001); about this it does.
            queryset = queryset.filter(ready_at__isnull=state in _WITHOUT_READY_AT)
        return queryset


class QueueFilter(admin.SimpleListFilter):
    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, name) for name in all_queue_names(self.value())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AbstractJob]) -> QuerySet[AbstractJob]:
        return queryset.filter(queue=self.value()) if self.value() else queryset


class TaskFilter(admin.SimpleListFilter):
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


class TimeFilter(admin.SimpleListFilter):
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


class InsertedFilter(TimeFilter):
    title = _("time enqueued")
    field = "inserted_at"


class FinishedFilter(TimeFilter):
    title = _("time finished")
    field = "finished_at"


def all_queue_names(*more: str | None) -> list[str]:
    """Name the queues of the settings, those with rules, and those with jobs to run."""
    names = {name for name in more if name}
    for backend, settings in backends():
        names.update(backend.queues, settings.queues)
    alias = database(Job)
    names.update(Queue.objects.using(alias).values_list("name", flat=True)[:200])
    try:
        with time_limit(alias, _CHOICES_LIMIT):
            names.update(queue_names(alias))
    except ReadTooSlow:
        # Dead entries at the index's head: VACUUM is behind. A list with fewer choices is better than none.
        pass
    return sorted(names)
