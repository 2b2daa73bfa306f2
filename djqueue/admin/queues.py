"""What waits where, and who serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from djqueue.admin import pausing
from djqueue.admin.base import ReadOnlyAdmin
from djqueue.admin.formatting import NOTHING, STATE_LABELS, ago, badge, duration
from djqueue.admin.sources import Source, may_view, page_url, source_of
from djqueue.jobs.lists import QueueCounts, WorkerStatus
from djqueue.jobs.states import LIVE_STATES
from djqueue.maintenance.health import Finding, judge
from djqueue.models import Job, Queue


@dataclass(frozen=True)
class Row:
    name: str
    url: str
    """The page with its rules; empty if it has none."""
    badge: str
    note: str
    counts: list[tuple[str, str]]
    """Number and address of the jobs, per live state."""
    oldest: str
    workers: int
    slots: int
    is_paused: bool


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin[Queue]):
    fields = ["name", "paused", "paused_by", "pause_reason"]
    readonly_fields = ["paused"]

    @admin.display(description=_("paused"))
    def paused(self, queue: Queue) -> str:
        return ago(queue.paused_at, queue.as_of)  # type: ignore[attr-defined]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """List every queue that is configured, has rules, has jobs or is served, not only those with a row."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return pausing.view(self, request)
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        source = source_of(request)
        queues: dict[str, Queue] = {source.bare(queue.pk): queue for queue in source.queues}
        workers, counts = source.workers, source.counts
        served = {name for worker in workers for name in worker.queues}
        names = source.queue_names(*queues, *(counts or ()), *served)
        alive = [worker for worker in workers if worker.state == "alive"]
        context = {
            "title": gettext("Queues"),
            "cl": {"opts": self.opts},
            "states": [STATE_LABELS[state] for state in LIVE_STATES],
            "are_counts_missing": counts is None,
            "may_pause": pausing.may(request),
            "findings": [] if source.is_default else [_line(finding) for finding in judge(source.engine.health())],
            "rows": [self._row(request, source, name, queues.get(name), counts, alive) for name in names],
            **(extra_context or {}),
        }
        return self.page(request, "admin/djqueue/queue_list.html", context)

    def _row(
        self,
        request: HttpRequest,
        source: Source,
        name: str,
        queue: Queue | None,
        counts: Mapping[str, QueueCounts] | None,
        alive: Sequence[WorkerStatus],
    ) -> Row:
        count = None if counts is None else counts.get(name, QueueCounts(name))
        serving = [worker for worker in alive if name in worker.queues]
        note = ""
        if queue is not None and queue.paused_at is not None:
            as_of: datetime = queue.as_of  # type: ignore[attr-defined]
            state = badge("paused", gettext("paused"))
            since = gettext("for %(duration)s") % {"duration": duration(as_of - queue.paused_at)}
            who = gettext("by %(who)s") % {"who": queue.paused_by} if queue.paused_by else ""
            note = " ".join(part for part in (since, who) if part) + (
                f": {queue.pause_reason}" if queue.pause_reason else ""
            )
        elif serving:
            state = badge("alive", gettext("served"))
        else:
            state = badge("silent", gettext("not served"))
        may_list = may_view(request, Job)
        return Row(
            name=name,
            url=page_url(self.admin_site, Queue, queue.pk) if queue is not None else "",
            badge=state,
            note=note,
            counts=[
                (
                    "?" if count is None else f"{count.states.get(live.value, 0):,}",
                    source.list_url(self.admin_site, Job, queue=name, state=live.value) if may_list else "",
                )
                for live in LIVE_STATES
            ],
            oldest=NOTHING
            if count is None or count.oldest_available_seconds is None
            else duration(timedelta(seconds=count.oldest_available_seconds)),
            workers=len(serving),
            slots=sum(worker.queues[name] or worker.concurrency for worker in serving),
            is_paused=queue is not None and queue.paused_at is not None,
        )


def _line(finding: Finding) -> tuple[str, str, str, str]:
    """Say what was looked at: sign, name, text and advice."""
    kind, label = {
        "ok": ("completed", gettext("ok")),
        "warning": ("silent", gettext("warning")),
        "bad": ("dead", gettext("bad")),
    }[finding.level]
    return badge(kind, label), finding.name, finding.text, finding.advice
