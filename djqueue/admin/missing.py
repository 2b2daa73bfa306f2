"""The page of a job that is not there any more, or never was: why that may be."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst
from django.utils.translation import gettext

from djqueue.admin.base import SourceAdmin
from djqueue.admin.formatting import STATE_LABELS, duration, exact
from djqueue.admin.sources import Source, may_view, source_of
from djqueue.jobs.retention import DEFAULT_RETENTION, Retention
from djqueue.jobs.states import FINAL_STATES
from djqueue.models import FinishedJob, Job

_MOST_ENTRIES = 5


def view(model_admin: SourceAdmin[Any], request: HttpRequest, key: str) -> HttpResponse:
    """Say that there is no such job, and why that may be; with status 404."""
    source, site = source_of(request), model_admin.admin_site
    bare = source.bare(key)
    context = {
        "status": 404,
        "sentence": gettext("There is no job %(id)s in %(source)s.") % {"id": f"{bare:.40}", "source": source.label},
        "kept": kept(source),
        "entries": [
            f"{exact(entry.action_time)}, {entry.user}: {entry.change_message}" for entry in log_entries(source, bare)
        ],
        "lists": [
            (capfirst(str(model._meta.verbose_name_plural)), source.list_url(site, model))
            for model in (Job, FinishedJob)
            if may_view(request, model)
        ],
    }
    title = gettext("Job %(id)s does not exist") % {"id": f"{bare:.40}"}
    return model_admin.question(request, "admin/djqueue/missing.html", title, context)


def kept(source: Source) -> str:
    """Say how long the store's backend keeps finished jobs."""
    store = next(iter(source.stores), None)
    retention: Retention = DEFAULT_RETENTION if store is None else store.settings.retention
    parts = []
    for state in sorted(FINAL_STATES):
        keep = retention.get(state)
        limits = []
        if keep is not None and keep.age is not None:
            limits.append(duration(keep.age))
        if keep is not None and keep.count is not None:
            limits.append(gettext("%(count)s jobs") % {"count": f"{keep.count:,}"})
        parts.append(f"{STATE_LABELS[state]} {', '.join(limits) or gettext('for ever')}")
    return f"{'; '.join(parts)}."


def log_entries(source: Source, bare: str) -> list[LogEntry]:
    """Return what the log of the admin says about a job, under whichever table it was listed then."""
    types = ContentType.objects.get_for_models(Job, FinishedJob).values()
    entries = LogEntry.objects.filter(object_id=source.key(bare), content_type__in=types).select_related("user")
    return list(entries.order_by("-action_time")[:_MOST_ENTRIES])
