"""Where the jobs of a page live.

Jobs in PostgreSQL are read from their tables (``tables.py``), which can be joined, sorted and counted. Those of any other
backend are what its engine tells (``rows.py``). Whatever a store tells becomes a row of our models, saved or not: so there is
one page for all stores, with the same columns, words, buttons and permissions.

Which store a page shows stands in its address: ``?backend=ALIAS`` of a list, and ``ALIAS/17`` as the key of a row. An address
without either means the tables, and in a project without any the first backend of TASKS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import parse_qs

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.db import DEFAULT_DB_ALIAS, models, router
from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from djqueue import stores as entries
from djqueue.engines.protocol import Engine
from djqueue.exceptions import DjqueueError
from djqueue.jobs.records import QueueCounts
from djqueue.models import AbstractJob, Job, Queue, Worker
from djqueue.stores import PostgresStore

if TYPE_CHECKING:
    from djqueue.admin.lists import StoreChangeList

BACKEND = "backend"
"""The parameter of an address that names a store."""


class Store(ABC):
    """Jobs, queues and workers, as rows of our models. Jobs, queues, workers and entries have ``as_of``, the store's time."""

    aliases: Collection[str]
    """The entries of TASKS whose jobs it holds."""
    alias: str
    """The first of them: who asks for the crontab names it."""
    has_tables = False
    database_of_writes = ""
    """The alias in DATABASES whose transactions what is done to the store belongs to; empty if it belongs to none."""

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """What acts upon the jobs."""

    @property
    def label(self) -> str:
        return ", ".join(self.aliases)

    @property
    def params(self) -> dict[str, str]:
        """What the address of a list says about the store."""
        return {} if self.has_tables else {BACKEND: self.alias}

    def key(self, id: object) -> str:
        """Return what names a row in addresses, forms and the log."""
        return str(id) if self.has_tables else f"{self.alias}/{id}"

    def bare(self, key: object) -> str:
        """Return what a key names without the name of the store."""
        return str(key) if self.has_tables else bare(key)

    def list_url(self, site: admin.AdminSite, model: type[models.Model], **params: str) -> str:
        url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist", current_app=site.name)
        params = {**self.params, **params}
        return f"{url}?{urlencode(params)}" if params else url

    @property
    @abstractmethod
    def job_list(self) -> type[StoreChangeList]:
        """Return what makes the list of jobs."""

    @abstractmethod
    def rows(self, model: type[models.Model]) -> Collection[Any]:
        """Return all queues about which somebody decided something, all workers or all entries of the crontab."""

    @abstractmethod
    def job(self, id: int) -> AbstractJob | None:
        """Return the job, live or finished, with all that is known of it."""

    @abstractmethod
    def jobs(self, ids: Collection[int]) -> list[AbstractJob]:
        """Return those that exist, in any order; their state, task and queue will do."""

    @abstractmethod
    def counts(self) -> Mapping[str, QueueCounts] | None:
        """Count live jobs by queue and state; None if that takes too long."""

    @abstractmethod
    def queue_names(self, *more: str | None) -> list[str]:
        """Name the queues of the settings, those with rules, and those with jobs to run, as far as they are quickly known."""

    @abstractmethod
    def count_states(self, everything: Any) -> Mapping[str, int] | None:
        """Count the jobs that a list finds by their states; None if that takes too long."""

    @abstractmethod
    def pages(self, everything: Any, size: int) -> Iterator[list[int]]:
        """Yield the ids of the jobs that a list finds, up to the newest of now."""

    @abstractmethod
    def queue(self, name: str) -> Queue | None:
        """Return what somebody decided about a queue."""

    @abstractmethod
    def workers(self, ids: Collection[str] | None = None) -> list[Worker]:
        """Return the workers of these ids, or all."""


def stores() -> list[Store]:
    """Return the stores of all usable backends, the tables first."""
    from djqueue.admin.rows import Rows

    tables: list[PostgresStore] = []
    others: dict[str, list[Any]] = {}
    for backend in entries.all():
        if has_tables(backend):
            tables.append(backend)
        else:
            others.setdefault(backend.engine.store, []).append(backend)
    found: list[Store] = [Rows(sharing) for sharing in others.values()]
    if tables or not found:
        # Not before it is needed: it imports psycopg.
        from djqueue.admin.tables import Tables

        found.insert(0, Tables(tables))
    return found


def store_of(request: HttpRequest) -> Store:
    """Return the store that a request is about, the same object each time: what it has read stays read."""
    if (found := getattr(request, "_djqueue_store", None)) is None:
        found = _find(request)
        request._djqueue_store = found  # type: ignore[attr-defined]
    return found


def store_named(alias: str | None = None) -> Store:
    """Return the store of an entry of TASKS, or the one that is shown without any name."""
    known = stores()
    if alias is None:
        return known[0]
    for store in known:
        if alias in store.aliases:
            return store
    raise DjqueueError(f"The admin shows no backend {alias!r}, only: {', '.join(store.label for store in known)}.")


def bare(key: object) -> str:
    """Return an id without the name of its store. No id holds a slash, and no name of a queue."""
    return str(key).rpartition("/")[2]


def has_tables(store: entries.Store) -> TypeGuard[PostgresStore]:
    return isinstance(store, PostgresStore)


def database(model: type[models.Model]) -> str:
    """Name the alias of the tables to read: what a router says, or else what the options of a backend say."""
    routed = router.db_for_read(model)
    if routed != DEFAULT_DB_ALIAS:
        return routed
    return next((backend.settings.database for backend in entries.all() if has_tables(backend)), DEFAULT_DB_ALIAS)


def home_of(backends: Sequence[Any], read: str) -> str:
    """Name the alias of the tables to write, of those backends that share them.

    Where a router leads reads to an alias that no backend names, as to a replica, its word about writes decides between backends.
    """
    homes = [backend.settings.database for backend in backends]
    for alias in (read, router.db_for_write(Job)):
        if alias in homes:
            return alias
    return homes[0] if homes else router.db_for_write(Job)


def _find(request: HttpRequest) -> Store:
    match = request.resolver_match
    key = unquote(match.kwargs.get("object_id") or "") if match else ""
    if alias := key.rpartition("/")[0]:
        with suppress(DjqueueError):
            return store_named(alias)
    # A page that was reached from a list knows the parameters of the list.
    before = parse_qs(request.GET.get("_changelist_filters", "")).get(BACKEND, [None])[-1]
    try:
        return store_named(request.GET.get(BACKEND, before))
    except DjqueueError as error:
        raise Http404(str(error)) from error


def may_view(request: HttpRequest, model: type[models.Model]) -> bool:
    return bool(request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}"))


def page_url(site: admin.AdminSite, model: type[models.Model], key: object) -> str:
    """Return the address of the page of a row."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    return reverse(name, args=[quote(str(key))], current_app=site.name)
