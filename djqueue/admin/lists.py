"""Lists of what a store tells: of jobs a page at a time, of workers and the crontab all at once.

An engine pages through its jobs in the order of their ids, and stops a search that finds little after a while; then the
list says so and has a link to search on from there. It does not count what a filter finds, and knows no way back but to the
newest. The list of the tables, which can do that, is in ``changelist.py``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext

from djqueue.admin.filters import Filter, job_id, search
from djqueue.admin.glance import Glance, of
from djqueue.admin.stores import BACKEND, Store, may_view, page_url, store_of
from djqueue.admin.words import somebody
from djqueue.engines.protocol import Engine
from djqueue.jobs import records
from djqueue.jobs.encoding import is_storable
from djqueue.jobs.records import JobFilter, Newest
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES
from djqueue.models import AbstractJob, Job, Worker

if TYPE_CHECKING:
    from djqueue.admin.jobs import AbstractJobAdmin

READ_SECONDS = 2.0


class StoreChangeList(ChangeList):
    """A list of one store: which one is no filter, but stays in every link."""

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = super().get_filters_params(params)
        found.pop(BACKEND, None)
        return found

    @property
    def is_impossible(self) -> bool:
        """Say whether no row can match, as with a text that no store holds."""
        return not all(is_storable(str(value)) for value in (self.query, *self.params.values()))

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Any:
        queryset = super().get_queryset(request, exclude_parameters)
        return queryset.none() if self.is_impossible else queryset

    def _filter(self, request: HttpRequest) -> None:
        self.filter_specs, self.has_filters, unknown, _, self.has_active_filters = self.get_filters(request)
        if unknown:
            raise BadRequest(f"This list has no filter {', '.join(map(repr, unknown))}.")
        self.clear_all_filters_qs = self.get_query_string(remove=list(self.get_filters_params()))


class ListedRows(list[Any]):
    """Rows in the place of a queryset."""

    def filter(self, *, pk__in: Collection[str]) -> ListedRows:
        return ListedRows(row for row in self if row.pk in pk__in)


class RowChangeList(StoreChangeList):
    """All of what is never many."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Any:
        self._filter(request)
        words = self.query.lower().split()
        return ListedRows(
            row
            for row in store_of(request).rows(self.model)
            if all(any(word in str(getattr(row, field)).lower() for field in self.search_fields) for word in words)
        )

    def get_results(self, request: HttpRequest) -> None:
        self.result_list = self.queryset
        # Were the two different, Django would show a link to all rows, which would lead to another store.
        self.result_count = self.full_result_count = len(self.queryset)
        self.show_full_result_count = self.show_admin_actions = True
        self.can_show_all, self.multi_page = True, False
        self.paginator = Paginator(self.queryset, self.list_per_page)


class JobList(StoreChangeList):
    """What both lists of jobs have in common."""

    model_admin: AbstractJobAdmin[Any]

    notice = ""
    """What the reader must know about an incomplete search."""
    newest_url = newer_url = older_url = oldest_url = ""
    count_words = ""
    is_uncounted = False
    """Whether ``result_count`` is no more than what is known for certain."""

    @property
    def is_impossible(self) -> bool:
        return super().is_impossible or any(cast("Filter", spec).is_impossible for spec in self.filter_specs)

    @property
    def has_active_filters_or_query(self) -> bool:
        return bool(self.has_active_filters or self.query)

    def take(self, name: str) -> str:
        """Take a parameter out of the links: a filter or a search starts at the newest job again."""
        self.filter_params.pop(name, None)
        return str(self.params.pop(name, ""))

    def glances(self, jobs: Sequence[AbstractJob]) -> Mapping[Any, Glance]:
        """Return arguments and errors of the jobs of a page, by key."""
        return {job.pk: of(job) for job in jobs}

    def show(self, request: HttpRequest, jobs: Sequence[AbstractJob]) -> None:
        """Make these jobs the page."""
        glances = self.glances(jobs)
        for job in jobs:
            job.glance = glances.get(job.pk, Glance())  # type: ignore[attr-defined]
        self.result_list = jobs
        self.show_full_result_count = False
        self.show_admin_actions = bool(jobs)
        self.can_show_all, self.multi_page = False, False
        _name_workers(request, self.model_admin, jobs)


class Matching:
    """All jobs that a list finds, in the place of a queryset. Those that somebody chose are named by their ids."""

    def __init__(self, jobs: JobFilter | None) -> None:
        self.jobs = jobs
        """None: no job can match."""

    def filter(self, **kwargs: Any) -> Matching:
        return self


class JobRowList(JobList):
    """A page of the jobs behind an engine."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Any:
        self.after = self.take("after")
        for name in ("before", "o"):
            self.take(name)
        self._filter(request)
        return Matching(None if self.is_impossible else self._jobs())

    def get_results(self, request: HttpRequest) -> None:
        store = store_of(request)
        before = None if not self.after else _number(self.after)
        # A job of an id would have been shown at once.
        is_empty = job_id(self.query) is not None or self.queryset.jobs is None
        page = Newest((), None) if is_empty else self._read(store.engine, before)
        jobs = [store.job_row(job) for job in page.jobs]  # type: ignore[attr-defined]
        if before is not None:
            self.newest_url = self.get_query_string()
        if page.before is not None:
            self.older_url = self.get_query_string({"after": str(page.before)})
            if len(jobs) < self.list_per_page:
                self.notice = gettext("Looking through all jobs takes too long; shown is what was found so far.")
        count = (
            self._count(store, self.queryset.jobs)
            if (self.newest_url or self.older_url) and not is_empty
            else len(jobs)
        )
        self.is_uncounted = count is None
        self.result_count = self.full_result_count = len(jobs) if count is None else count
        self.count_words = (
            gettext("%(count)s shown") if count is None else ngettext("%(count)s job", "%(count)s jobs", count)
        ) % {"count": f"{self.result_count:,}"}
        self.paginator = Paginator(jobs, self.list_per_page)
        self.show(request, jobs)

    def _read(self, engine: Engine, before: int | None) -> Newest:
        """Read a page; a search that finds little gets some time."""
        found: list[records.Job] = []
        until = time.monotonic() + READ_SECONDS
        while True:
            page = engine.newest(self.queryset.jobs, before=before, limit=self.list_per_page - len(found))
            found += page.jobs
            before = page.before
            if len(found) == self.list_per_page or before is None or time.monotonic() > until:
                return Newest(found, before)

    def _count(self, store: Store, jobs: JobFilter) -> int | None:
        """Count what a list finds, if the store counts that anyway; None otherwise."""
        if self.model is not Job or jobs.task or jobs.task_prefix or jobs.worker or jobs.newer_than:
            return None
        counts = (store.counts() or {}).values()
        return sum(
            count.states.get(state.value, 0)
            for count in counts
            if jobs.queue in (None, count.queue)
            for state in jobs.states
        )

    def url_for_result(self, result: Any) -> str:
        return page_url(self.model_admin.admin_site, type(result), result.pk)

    def _jobs(self) -> JobFilter:
        jobs = JobFilter(states=LIVE_STATES if self.model is Job else FINAL_STATES)
        for spec in self.filter_specs:
            jobs = cast("Filter", spec).narrow(jobs)
        return search(jobs, self.query)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadRequest(f"{text!r} is no place in this list.")
    return int(text)


def _name_workers(request: HttpRequest, model_admin: AbstractJobAdmin[Any], jobs: Sequence[AbstractJob]) -> None:
    """Find the names of all workers of a page at once."""
    ids = {str(job.attempted_by) for job in jobs if somebody(job.attempted_by)}
    store = store_of(request)
    if not ids or not may_view(request, Worker):
        return
    workers = {store.bare(worker.pk): worker for worker in store.workers(ids)}
    for job in jobs:
        if worker := workers.get(str(job.attempted_by)):
            job.worker_name = worker.name  # type: ignore[attr-defined]
            job.worker_url = page_url(model_admin.admin_site, Worker, worker.pk)  # type: ignore[attr-defined]
