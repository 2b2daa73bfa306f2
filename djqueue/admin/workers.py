"""Who runs jobs, and who has stopped beating."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from djqueue.admin.base import ReadOnlyAdmin
from djqueue.admin.situation import worker_state
from djqueue.admin.stores import bare, store_named, store_of
from djqueue.admin.words import NOTHING, ago, badge
from djqueue.models import Job, Worker

LABELS = {"alive": _("alive"), "draining": _("draining"), "silent": _("silent"), "dead": _("dead")}


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    list_display = ["name", "state", "hostname", "pid", "queue_names", "concurrency", "started", "last_beat"]
    ordering = ["hostname", "pid", "started_at", "id"]
    list_per_page = 200
    # A small table: counting it costs nothing.
    show_full_result_count = True
    search_fields = ["name", "hostname"]
    fields = [
        "id",
        "name",
        "state",
        "hostname",
        "pid",
        "queue_names",
        "concurrency",
        "started",
        "last_beat",
        "died",
        "jobs",
    ]
    readonly_fields = ["state", "queue_names", "started", "last_beat", "died", "jobs"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return super().get_queryset(request).annotate(as_of=Now())

    def get_list_display(self, request: HttpRequest) -> Any:
        return self._known(request, self.list_display)

    def get_fields(self, request: HttpRequest, obj: Worker | None = None) -> Any:
        return self._known(request, self.fields)

    def _known(self, request: HttpRequest, names: Any) -> list[str]:
        """Leave out what only tables tell."""
        return [name for name in names if store_of(request).has_tables or name not in ("started", "died")]

    @admin.display(description=_("state"))
    def state(self, worker: Worker) -> str:
        state = worker_state(worker, _as_of(worker))
        return badge(state, LABELS[state])

    @admin.display(description=_("queues"))
    def queue_names(self, worker: Worker) -> str:
        queues: Any = worker.queues
        if not isinstance(queues, dict):
            return str(queues)
        words = [f"{name}:{limit}" if limit else str(name) for name, limit in queues.items()]
        return ", ".join(words) or NOTHING

    @admin.display(description=_("started"))
    def started(self, worker: Worker) -> str:
        return ago(worker.started_at, _as_of(worker))

    @admin.display(description=_("last beat"))
    def last_beat(self, worker: Worker) -> str:
        return ago(worker.beat_at, _as_of(worker))

    @admin.display(description=_("died"))
    def died(self, worker: Worker) -> str:
        return ago(worker.died_at, _as_of(worker))

    @admin.display(description=_("jobs"))
    def jobs(self, worker: Worker) -> str:
        store = store_named(str(worker.pk).rpartition("/")[0] or None)
        url = store.list_url(self.admin_site, Job, q=bare(worker.pk), state="executing")
        return format_html('<a href="{}">{}</a>', url, gettext("What it executes"))


def _as_of(worker: Worker) -> datetime:
    as_of: datetime = worker.as_of  # type: ignore[attr-defined]
    return as_of
