"""The page of a job that is not there any more, or never was: why that may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.text import capfirst
from django.utils.translation import gettext

from djqueue.admin.stores import Store, may_view, store_of
from djqueue.admin.words import STATE_LABELS, duration, exact
from djqueue.jobs.retention import DEFAULT_RETENTION, Retention
from djqueue.jobs.states import FINAL_STATES
from djqueue.models import FinishedJob, Job

if TYPE_CHECKING:
    from djqueue.admin.jobs import AbstractJobAdmin

_MOST_ENTRIES = 5


def view(model_admin: AbstractJobAdmin[Any], request: HttpRequest, key: str) -> HttpResponse:
    """Say that there is no such job, and why that may be; with status 404."""
    store, site = store_of(request), model_admin.admin_site
    bare = store.bare(key)
    title = gettext("Job %(id)s is not there") % {"id": f"{bare:.40}"}
    request.current_app = site.name
    context = {
        **model_admin.page_context(request),
        "title": title,
        # What Django's template of a form looks at besides the block that ours fills.
        "original": title,
        "add": False,
        "change": True,
        "sentence": gettext("There is no job %(id)s in %(store)s.") % {"id": f"{bare:.40}", "store": store.label},
        "kept": kept(store),
        "entries": [
            f"{exact(entry.action_time)}, {entry.user}: {entry.change_message}" for entry in log_entries(store, bare)
        ],
        "lists": [
            (capfirst(str(model._meta.verbose_name_plural)), store.list_url(site, model))
            for model in (Job, FinishedJob)
            if may_view(request, model)
        ],
    }
    return TemplateResponse(request, "admin/djqueue/gone.html", context, status=404)


def kept(store: Store) -> str:
    """Say how long the store's backend keeps finished jobs."""
    backend = next(iter(getattr(store, "backends", [])), None)
    retention: Retention = DEFAULT_RETENTION if backend is None else backend.settings.retention
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


def log_entries(store: Store, bare: str) -> list[LogEntry]:
    """Return what the log of the admin says about a job, whichever table held it then."""
    types = ContentType.objects.get_for_models(Job, FinishedJob).values()
    entries = LogEntry.objects.filter(object_id=store.key(bare), content_type__in=types).select_related("user")
    return list(entries.order_by("-action_time")[:_MOST_ENTRIES])
