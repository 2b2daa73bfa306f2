"""Live and finished jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from djqueue.admin import control, detail, filters, gone
from djqueue.admin.base import ReadOnlyAdmin
from djqueue.admin.stores import bare, may_view, store_of
from djqueue.admin.words import NOTHING, ago, attempts, duration, short, somebody, state_badge, task_name
from djqueue.jobs.states import JobState
from djqueue.models import NEVER, AbstractJob, FinishedJob, Job

J = TypeVar("J", bound=AbstractJob)


class AbstractJobAdmin(ReadOnlyAdmin[J]):
    change_list_template = "admin/djqueue/job_list.html"
    list_display_links = ["number"]
    list_per_page = 100
    sortable_by = ()
    # Only says that there is a search; get_search_results does it.
    search_fields = ["id"]
    search_help_text = _("An id, a part of a task's name, or a worker's id.")
    actions_selection_counter = True

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return store_of(request).job_list

    @control.outside_of_transactions
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        control.check(self, request)
        # Who types an id wants that job, whichever table holds it by now.
        job_id = filters.job_id(request.GET.get(SEARCH_VAR, ""))
        if job_id is not None and (url := detail.find(self, request, job_id)):
            return HttpResponseRedirect(url)
        return super().changelist_view(request, extra_context)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        # Django allows any lookup on a local field in the address. One on a JSON column reads the table, and tells
        # whoever guesses what stands in arguments that are not shown.
        return lookup in filters.PARAMETERS

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[J], search_term: str
    ) -> tuple[QuerySet[J], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if (job_id := filters.job_id(term)) is not None:
            return queryset.filter(pk=job_id), False
        if (worker := filters.worker_id(term)) is not None:
            return queryset.filter(attempted_by=worker), False
        return queryset.filter(task__icontains=term), False

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return detail.view(self, request, object_id, extra_context or {})

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        store = store_of(request)
        job_id = filters.job_id(store.bare(unquote(object_id)))
        job = None if job_id is None else store.job(job_id)
        model = self.model if job is None else detail.table_of(job)
        if not may_view(request, model):
            raise PermissionDenied
        if job is None:
            return gone.view(self, request, unquote(object_id))
        if model is not self.model:
            # It has finished since, or runs again.
            name = f"admin:{self.opts.app_label}_{model._meta.model_name}_history"
            return HttpResponseRedirect(
                reverse(name, args=[quote(store.key(job_id))], current_app=self.admin_site.name)
            )
        # What somebody did to a job is logged under the table that held it then.
        entries = (
            LogEntry.objects.filter(
                object_id=store.key(store.bare(unquote(object_id))),
                content_type__in=ContentType.objects.get_for_models(Job, FinishedJob).values(),
            )
            .select_related("user", "content_type")
            .order_by("action_time")
        )
        page = Paginator(entries, 1000).get_page(1)
        return super().history_view(request, object_id, {"action_list": page, **(extra_context or {})})

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return control.VERBS["retry"].may(request)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return control.VERBS["cancel"].may(request)

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return control.VERBS["discard"].may(request)

    def has_remove_permission(self, request: HttpRequest) -> bool:
        # Django's own delete permission stays refused: its page knows nothing of jobs that execute.
        return bool(request.user.has_perm(f"djqueue.delete_{self.opts.model_name}"))

    @admin.action(description=_("Retry the selected jobs"), permissions=["retry"])
    def retry_jobs(self, request: HttpRequest, queryset: QuerySet[J]) -> HttpResponse:
        return control.act(self, request, control.VERBS["retry"], queryset)

    @admin.action(description=_("Cancel the selected jobs"), permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[J]) -> HttpResponse:
        return control.act(self, request, control.VERBS["cancel"], queryset)

    @admin.action(description=_("Discard the selected jobs"), permissions=["discard"])
    def discard_jobs(self, request: HttpRequest, queryset: QuerySet[J]) -> HttpResponse:
        return control.act(self, request, control.VERBS["discard"], queryset)

    @admin.action(description=_("Delete the selected jobs"), permissions=["remove"])
    def delete_jobs(self, request: HttpRequest, queryset: QuerySet[J]) -> HttpResponse:
        return control.act(self, request, control.VERBS["delete"], queryset)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> J | None:
        store = store_of(request)
        if store.has_tables:
            return super().get_object(request, object_id, from_field)
        id = filters.job_id(store.bare(object_id))
        return None if id is None else cast("J | None", store.job(id))

    @admin.display(description=_("id"))
    def number(self, job: J) -> str:
        return bare(job.pk)

    @admin.display(description=_("state"))
    def state_badge(self, job: J) -> str:
        return format_html('{} <span class="djq-gap djq-line">{}</span>', state_badge(job.state), job.queue)

    @admin.display(description=_("task"))
    def task_name(self, job: J) -> str:
        name: str = task_name(job.task)
        for kind, line in zip(("arguments", "error"), job.glance, strict=True):  # type: ignore[attr-defined]
            if line:
                name = format_html('{} <span class="djq-glance djq-{}" title="{}">{}</span>', name, kind, line, line)
        return name

    @admin.display(description=_("attempt"))
    def attempts(self, job: J) -> str:
        words = attempts(job.attempt, job.max_attempts)
        if job.priority == 0:
            return words
        priority = gettext("priority %(number)d") % {"number": job.priority}
        return format_html('{} <span class="djq-gap djq-line">{}</span>', words, priority)

    @admin.display(description=_("worker"))
    def worker(self, job: J) -> str:
        if (worker := somebody(job.attempted_by)) is None:
            return NOTHING
        if name := getattr(job, "worker_name", None):
            return format_html('<a href="{}">{}</a>', job.worker_url, name)  # type: ignore[attr-defined]
        return format_html('<span title="{}">{}</span>', str(worker), short(worker))

    @admin.display(description=_("enqueued"))
    def age(self, job: J) -> str:
        return ago(job.inserted_at, _as_of(job))


@admin.register(Job)
class JobAdmin(AbstractJobAdmin[Job]):
    actions = ["retry_jobs", "cancel_jobs", "discard_jobs", "delete_jobs"]
    list_display = ["number", "state_badge", "task_name", "age", "now", "attempts", "worker"]
    list_filter = [filters.StateFilter, filters.QueueFilter, filters.TaskFilter, filters.InsertedFilter]

    @admin.display(description=_("now"))
    def now(self, job: Job) -> str:
        now = _as_of(job)
        match job.state:
            case JobState.AVAILABLE if job.ready_at is not None:
                return gettext("waits %(duration)s") % {"duration": duration(now - job.ready_at)}
            case JobState.EXECUTING if job.attempted_at != NEVER:
                return gettext("runs %(duration)s") % {"duration": duration(now - job.attempted_at)}
            case JobState.SCHEDULED | JobState.RETRYABLE if job.scheduled_at is not None:
                if job.scheduled_at > now:
                    return gettext("due in %(duration)s") % {"duration": duration(job.scheduled_at - now)}
                return gettext("due for %(duration)s") % {"duration": duration(now - job.scheduled_at)}
        return NOTHING


@admin.register(FinishedJob)
class FinishedJobAdmin(AbstractJobAdmin[FinishedJob]):
    actions = ["retry_jobs", "delete_jobs"]
    list_display = ["number", "state_badge", "task_name", "finished", "took", "attempts", "worker"]
    list_filter = [filters.StateFilter, filters.QueueFilter, filters.TaskFilter, filters.FinishedFilter]

    @admin.display(description=_("finished"))
    def finished(self, job: FinishedJob) -> str:
        return ago(job.finished_at, _as_of(job))

    @admin.display(description=_("ran"))
    def took(self, job: FinishedJob) -> str:
        ran, waited = _between(job.attempted_at, job.finished_at), _between(job.ready_at, job.attempted_at)
        if waited == NOTHING:
            return ran
        words = gettext("waited %(duration)s") % {"duration": waited}
        return format_html('{} <span class="djq-gap djq-line">{}</span>', ran, words)


def _as_of(job: AbstractJob) -> datetime:
    """Return the database's time of the read: the web server's clock may differ from the one that wrote the row."""
    as_of: datetime = job.as_of  # type: ignore[attr-defined]
    return as_of


def _between(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None or NEVER in (start, end) or end - start < timedelta(0):
        return NOTHING
    return duration(end - start)
