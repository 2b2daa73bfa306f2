"""The workers: which run jobs, and which have stopped beating."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from djqueue.admin.base import ReadOnlyAdmin
from djqueue.admin.formatting import NOTHING, ago, badge
from djqueue.admin.sources import bare, source_named, source_of
from djqueue.models import Job, Worker

LABELS = {"alive": _("alive"), "draining": _("draining"), "silent": _("silent"), "dead": _("dead")}
ONLY_IN_TABLES = ("started", "died")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    list_display = ["name", "state", "hostname", "pid", "queue_names", "concurrency", "started", "last_beat"]
    sort_keys = {
        "name": lambda worker: worker.name,
        "hostname": lambda worker: worker.hostname,
        "pid": lambda worker: worker.pid,
        "concurrency": lambda worker: worker.concurrency,
    }
    search_fields = ["name", "hostname"]
    fields = ["id", "name", "state", "hostname", "pid", "queue_names", "concurrency", "started", "last_beat", "died", "jobs"]  # fmt: skip
    readonly_fields = ["state", "queue_names", "started", "last_beat", "died", "jobs"]

    def get_list_display(self, request: HttpRequest) -> Any:
        return _known(request, self.list_display)

    def get_fields(self, request: HttpRequest, obj: Worker | None = None) -> Any:
        return _known(request, self.fields)

    @admin.display(description=_("state"))
    def state(self, worker: Worker) -> str:
        state: str = worker.state  # type: ignore[attr-defined]
        return badge(state, LABELS[state])

    @admin.display(description=_("queues"))
    def queue_names(self, worker: Worker) -> str:
        words = [f"{name}:{limit}" if limit else str(name) for name, limit in worker.queues.items()]
        return ", ".join(words) or NOTHING

    @admin.display(description=_("started"))
    def started(self, worker: Worker) -> str:
        return ago(worker.started_at, worker.as_of)  # type: ignore[attr-defined]

    @admin.display(description=_("last beat"))
    def last_beat(self, worker: Worker) -> str:
        return ago(worker.beat_at, worker.as_of)  # type: ignore[attr-defined]

    @admin.display(description=_("died"))
    def died(self, worker: Worker) -> str:
        return ago(worker.died_at, worker.as_of)  # type: ignore[attr-defined]

    @admin.display(description=_("jobs"))
    def jobs(self, worker: Worker) -> str:
        source = source_named(str(worker.pk).rpartition("/")[0] or None)
        url = source.list_url(self.admin_site, Job, q=bare(worker.pk), state="executing")
        return format_html('<a href="{}">{}</a>', url, gettext("Jobs that it executes"))


def _known(request: HttpRequest, names: Any) -> list[str]:
    """Leave out what the store does not keep."""
    is_kept = any(worker.started_at is not None for worker in source_of(request).workers)
    return [name for name in names if is_kept or name not in ONLY_IN_TABLES]
