"""Live and finished jobs: their lists, their pages, and what may be done to them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import SEARCH_VAR
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from djqueue.admin import control, detail, filters, missing
from djqueue.admin.base import ReadOnlyAdmin
from djqueue.admin.formatting import (
    NOTHING,
    ago,
    arguments_line,
    attempts,
    duration,
    error_line,
    short,
    state_badge,
    task_name,
)
from djqueue.admin.lists import List, Query
from djqueue.admin.sources import Source, may_view, model_of, page_url, source_of
from djqueue.exceptions import InvalidPosition
from djqueue.jobs.lists import ListedJob, Tally, WorkerStatus
from djqueue.jobs.states import JobState
from djqueue.models import AbstractJob, FinishedJob, Job, Worker

J = TypeVar("J", bound=AbstractJob)


class ShownJob(NamedTuple):
    """A job as the columns of a list need it."""

    job: ListedJob
    source: Source
    number: int
    worker: WorkerStatus | None
    """None: its name is not known, or may not be shown."""

    @property
    def now(self) -> datetime:
        """The time by the store's clock: the web server's may differ from the one that wrote the row."""
        return self.source.now


class AbstractJobAdmin(ReadOnlyAdmin[J]):
    change_list_template = "admin/djqueue/job_list.html"
    list_per_page = 100
    search_help_text = _("An id, a part of a task's name, or a worker's id.")
    actions_selection_counter = True

    @property
    def is_finished(self) -> bool:
        return self.model is FinishedJob

    @control.outside_of_transactions
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        control.check(self, request)
        # A search for an id leads to the job, under whichever model it is listed by now.
        job_id = filters.job_id(request.GET.get(SEARCH_VAR, ""))
        if request.method != "POST" and job_id is not None and (url := detail.find(self, request, job_id)):
            return HttpResponseRedirect(url)
        try:
            return super().changelist_view(request, extra_context)
        except InvalidPosition as error:
            raise BadRequest(str(error)) from error

    def listing(self, request: HttpRequest) -> List:
        source, query = source_of(request), Query(request, filters.PARAMETERS)
        jobs = filters.wanted(query.filters, query.term, is_finished=self.is_finished)
        shown = List(self.opts, query, search_help=self.search_help_text)
        for each in filters.filters(source, query.filters, is_finished=self.is_finished):
            shown.filters.append((each.title, query.choices(each)))
        if jobs is None:
            shown.count_words = gettext("0 jobs")
            shown.fill([], self.columns(request, query))
            return shown
        reader = source.reader(self.model)
        page = reader.page(jobs, after=query.after, before=query.before, limit=self.list_per_page)
        workers: dict[UUID | None, WorkerStatus] = {}
        if any(job.attempted_by for job in page.jobs) and may_view(request, Worker):
            workers = {worker.id: worker for worker in source.workers}
        self.fill(
            request,
            shown,
            [(source.key(job.id), ShownJob(job, source, job.id, workers.get(job.attempted_by))) for job in page.jobs],
        )
        is_whole = page.is_first and not page.older
        if page.is_slow and not is_whole:
            # What finds a hundred jobs so slowly cannot be counted quickly.
            tally = None if page.is_cut else Tally(len(page.jobs), is_exact=False)
        else:
            tally = Tally(len(page.jobs)) if is_whole else reader.tally(jobs)
        shown.turn(page, tally)
        shown.footnote = _order_of(page.sorted_by)
        return shown

    def row_model(self, row: ShownJob) -> type[Job] | type[FinishedJob]:
        return model_of(row.job.state)

    def chosen(self, request: HttpRequest, keys: Any) -> control.Selection:
        if request.POST.get("select_across") != "1":
            return control.Selection(ids=control.ids_of(source_of(request), keys))
        query = Query(request, filters.PARAMETERS)
        jobs = filters.wanted(query.filters, query.term, is_finished=self.is_finished)
        return control.Selection(jobs=jobs, is_all=True)

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
        found = detail.locate(self, request, object_id)
        if found.job is None:
            return missing.view(self, request, unquote(object_id))
        if found.model is not self.model:
            # It has finished since, or runs again.
            return HttpResponseRedirect(page_url(self.admin_site, found.model, found.key, "history"))
        # Actions are logged under the model of the job at that time.
        entries = (
            LogEntry.objects.filter(
                object_id=found.key,
                content_type__in=ContentType.objects.get_for_models(Job, FinishedJob).values(),
            )
            .select_related("user", "content_type")
            .order_by("action_time")
        )
        context = {
            "title": gettext("Change history: %(job)s") % {"job": found.name},
            "action_list": Paginator(entries, 1000).get_page(1),
            "module_name": str(self.opts.verbose_name_plural),
            "object": detail.Original(found.key, found.name),
            **(extra_context or {}),
        }
        return self.page(request, self.object_history_template, context)

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
    def retry_jobs(self, request: HttpRequest, jobs: control.Selection) -> HttpResponse:
        return control.act(self, request, control.VERBS["retry"], jobs)

    @admin.action(description=_("Cancel the selected jobs"), permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, jobs: control.Selection) -> HttpResponse:
        return control.act(self, request, control.VERBS["cancel"], jobs)

    @admin.action(description=_("Discard the selected jobs"), permissions=["discard"])
    def discard_jobs(self, request: HttpRequest, jobs: control.Selection) -> HttpResponse:
        return control.act(self, request, control.VERBS["discard"], jobs)

    @admin.action(description=_("Delete the selected jobs"), permissions=["remove"])
    def delete_jobs(self, request: HttpRequest, jobs: control.Selection) -> HttpResponse:
        return control.act(self, request, control.VERBS["delete"], jobs)

    @admin.display(description=_("id"))
    def number(self, row: ShownJob) -> str:
        return str(row.number)

    @admin.display(description=_("state"))
    def state_badge(self, row: ShownJob) -> str:
        return format_html('{} <span class="djq-gap djq-line">{}</span>', state_badge(row.job.state), row.job.queue)

    @admin.display(description=_("task"))
    def task_name(self, row: ShownJob) -> str:
        name: str = task_name(row.job.task)
        lines = {
            "arguments": arguments_line(row.job.args, row.job.kwargs),
            "error": error_line(row.job.exception, row.job.message),
        }
        for kind, line in lines.items():
            if line:
                name = format_html('{} <span class="djq-glance djq-{}" title="{}">{}</span>', name, kind, line, line)
        return name

    @admin.display(description=_("attempt"))
    def attempts(self, row: ShownJob) -> str:
        words = attempts(row.job.attempt, row.job.max_attempts)
        if row.job.priority == 0:
            return words
        priority = gettext("priority %(number)d") % {"number": row.job.priority}
        return format_html('{} <span class="djq-gap djq-line">{}</span>', words, priority)

    @admin.display(description=_("worker"))
    def worker(self, row: ShownJob) -> str:
        if row.job.attempted_by is None:
            return NOTHING
        if row.worker is not None:
            url = page_url(self.admin_site, Worker, row.source.key(row.worker.id))
            return format_html('<a href="{}">{}</a>', url, row.worker.name)
        return format_html('<span title="{}">{}</span>', str(row.job.attempted_by), short(row.job.attempted_by))

    @admin.display(description=_("enqueued"))
    def age(self, row: ShownJob) -> str:
        return ago(row.job.inserted_at, row.now)


@admin.register(Job)
class JobAdmin(AbstractJobAdmin[Job]):
    actions = ["retry_jobs", "cancel_jobs", "discard_jobs", "delete_jobs"]
    list_display = ["number", "state_badge", "task_name", "age", "now", "attempts", "worker"]

    @admin.display(description=_("now"))
    def now(self, row: ShownJob) -> str:
        job, now = row.job, row.now
        match job.state:
            case JobState.AVAILABLE if job.ready_at is not None:
                return gettext("waits %(duration)s") % {"duration": duration(now - job.ready_at)}
            case JobState.EXECUTING if job.attempted_at is not None:
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

    @admin.display(description=_("finished"))
    def finished(self, row: ShownJob) -> str:
        return ago(row.job.finished_at, row.now)

    @admin.display(description=_("ran"))
    def took(self, row: ShownJob) -> str:
        job = row.job
        ran, waited = _between(job.attempted_at, job.finished_at), _between(job.ready_at, job.attempted_at)
        if waited == NOTHING:
            return ran
        words = gettext("waited %(duration)s") % {"duration": waited}
        return format_html('{} <span class="djq-gap djq-line">{}</span>', ran, words)


def _between(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None or end - start < timedelta(0):
        return NOTHING
    return duration(end - start)


def _order_of(column: str) -> str:
    if column == "finished_at":
        return gettext("Sorted by the time when they finished. No other order is indexed; use the filters instead.")
    return gettext("Sorted by the time when they were enqueued. No other order is indexed; use the filters instead.")
