"""Where the jobs of a page are stored, and how the admin reads them.

One source per store, read through the verbs of its engine. Which store a page shows is part of its address: ``?backend=ALIAS``
for a list, and ``ALIAS/17`` as the key of a row. An address without either means PostgreSQL, and in a project without a
PostgreSQL backend the first backend of TASKS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeGuard, TypeVar
from urllib.parse import parse_qs

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.db import DEFAULT_DB_ALIAS, models, router
from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from djqueue import compat
from djqueue import stores as entries
from djqueue.cron import entry as cron
from djqueue.engines.protocol import Engine
from djqueue.exceptions import DjqueueError
from djqueue.jobs import lists
from djqueue.jobs.states import JobState
from djqueue.models import CronEntry, FinishedJob, Job, Queue, Worker
from djqueue.stores import PostgresStore, Store

M = TypeVar("M", bound=models.Model)

BACKEND = "backend"
"""The parameter of an address that names a store."""
COUNT_LIMIT = timedelta(seconds=2)


class Source:
    """One store. It lasts as long as a request, and what was read once is not read again.

    Queues, workers and entries of the crontab are few. They are returned as instances of our models that are never saved, with
    ``as_of``, the store's time: Django's detail pages and forms need instances.
    """

    def __init__(self, stores: Sequence[Any], *, is_default: bool) -> None:
        self.is_default = is_default
        """Keys and addresses do not name the store."""
        self.database_of_writes = ""
        """The alias in DATABASES whose transactions include what is done to the store; empty if there is none."""
        if is_default:
            read = database(Job)
            self.database_of_writes = home_of(stores, read)
            stores = [each for each in stores if each.settings.database == self.database_of_writes] or stores
        self.stores = stores
        self.aliases = [store.alias for store in stores] or [compat.DEFAULT_TASK_BACKEND_ALIAS]
        """The entries of TASKS whose jobs are in the store."""
        self.alias = self.aliases[0]

    @cached_property
    def engine(self) -> Engine:
        """The engine that acts on the jobs."""
        homes = (
            each for each in self.stores if not self.is_default or each.settings.database == self.database_of_writes
        )
        store = next(homes, None)
        return _postgres(self.database_of_writes) if store is None else store.engine

    def reader(self, model: type[models.Model] = Job) -> Engine:
        """Return the engine that reads: on the database that the router names, which may be a replica."""
        if not self.is_default:
            return self.engine
        alias = database(model)
        return self.engine if alias == self.database_of_writes else _postgres(alias)

    @property
    def label(self) -> str:
        return ", ".join(self.aliases)

    @property
    def params(self) -> dict[str, str]:
        """The parameters that name the store in the address of a list."""
        return {} if self.is_default else {BACKEND: self.alias}

    def key(self, id: object) -> str:
        """Return the name of a row in addresses, forms and the log."""
        return str(id) if self.is_default else f"{self.alias}/{id}"

    def bare(self, key: object) -> str:
        """Return the id in a key."""
        return str(key) if self.is_default else bare(key)

    def list_url(self, site: admin.AdminSite, model: type[models.Model], **params: str) -> str:
        url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist", current_app=site.name)
        params = {**self.params, **params}
        return f"{url}?{urlencode(params)}" if params else url

    @cached_property
    def now(self) -> datetime:
        return self.reader().now()

    @cached_property
    def counts(self) -> Mapping[str, lists.QueueCounts] | None:
        """Live jobs by queue and state; None if counting takes too long."""
        counts = self.engine.quick_counts(limit=COUNT_LIMIT)
        return None if counts is None else {count.queue: count for count in counts}

    def queue_names(self, *more: str | None) -> list[str]:
        """Return the queues of the settings, those with rules, and those with jobs to run."""
        names = {name for name in more if name}
        for store in self.stores:
            names.update(store.queues, store.settings.queues)
        return sorted(names.union(self.reader().queue_names(), (self.bare(queue.pk) for queue in self.queues)))

    def queue(self, name: str) -> Queue | None:
        return next((queue for queue in self.queues if self.bare(queue.pk) == name), None)

    def rows(self, model: type[models.Model]) -> list[Any]:
        """Return all queues with rules, all workers, or all entries of the crontab."""
        if model is Queue:
            return self.queues
        return list(map(self._worker, self.workers)) if model is Worker else self.entries

    @cached_property
    def queues(self) -> list[Queue]:
        rules = self.reader(Queue).queues()
        return [self._row(Queue, rule.name, rule._asdict()) for rule in rules]

    @cached_property
    def workers(self) -> Sequence[lists.WorkerStatus]:
        return self.reader(Worker).workers()

    @cached_property
    def entries(self) -> list[CronEntry]:
        return [self._entry(entry) for entry in self.reader(CronEntry).cron.entries()]

    def _worker(self, worker: lists.WorkerStatus) -> Worker:
        values = {name: value for name, value in worker._asdict().items() if name not in ("silent_seconds", "is_dead")}
        values["beat_at"] = self.now - timedelta(seconds=worker.silent_seconds)
        row = self._row(Worker, worker.id, values)
        row.state = worker.state  # type: ignore[attr-defined]
        return row

    def _entry(self, entry: cron.CronEntry) -> CronEntry:
        values = {field.name: getattr(entry, field.name) for field in fields(entry)}
        definition = values.pop("definition")
        values["code"] = None if entry.code is None else entry.code.as_json()
        values |= {**asdict(definition), "args": definition.args}
        if isinstance(values["args"], tuple):
            values["args"] = list(values["args"])
        row = self._row(CronEntry, entry.id, values)
        row.stored = entry  # type: ignore[attr-defined]
        return row

    def _row(self, model: type[M], id: object, values: Mapping[str, Any]) -> M:
        row = model(**{**values, model._meta.pk.name: self.key(id)})
        row.as_of = self.now  # type: ignore[attr-defined]
        return row


def sources() -> list[Source]:
    """Return the sources of all usable entries of TASKS, the default one first."""
    tables: list[PostgresStore] = []
    others: dict[str, list[Store]] = {}
    for store in entries.all():
        if is_in_tables(store):
            tables.append(store)
        else:
            others.setdefault(store.engine.store, []).append(store)
    found = [Source(sharing, is_default=False) for sharing in others.values()]
    if tables or not found:
        found.insert(0, Source(tables, is_default=True))
    return found


def source_of(request: HttpRequest) -> Source:
    """Return the source that a request is about, the same object each time."""
    if (found := getattr(request, "_djqueue_source", None)) is None:
        found = request._djqueue_source = _find(request)  # type: ignore[attr-defined]
    return found


def source_named(alias: str | None = None) -> Source:
    """Return the source of an entry of TASKS, or the default one."""
    known = sources()
    if alias is None:
        return known[0]
    for source in known:
        if alias in source.aliases:
            return source
    raise DjqueueError(f"Invalid backend {alias!r}: use one of {', '.join(source.label for source in known)}.")


def bare(key: object) -> str:
    """Return an id without the name of its store. Neither ids nor names of queues contain a slash."""
    return str(key).rpartition("/")[2]


def is_in_tables(store: Store) -> TypeGuard[PostgresStore]:
    return isinstance(store, PostgresStore)


def database(model: type[models.Model]) -> str:
    """Return the alias of the database to read: the router's, or else that of a backend's options."""
    routed = router.db_for_read(model)
    if routed != DEFAULT_DB_ALIAS:
        return routed
    return next((store.settings.database for store in entries.all() if is_in_tables(store)), DEFAULT_DB_ALIAS)


def home_of(stores: Sequence[PostgresStore], read: str) -> str:
    """Return the alias of the database to write, of the stores that share it.

    Where a router leads reads to an alias that no store names, as to a replica, the database it names for writes decides.
    """
    homes = [store.settings.database for store in stores]
    for alias in (read, router.db_for_write(Job)):
        if alias in homes:
            return alias
    return homes[0] if homes else router.db_for_write(Job)


def may_view(request: HttpRequest, model: type[models.Model]) -> bool:
    return bool(request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}"))


def page_url(site: admin.AdminSite, model: type[models.Model], key: object, page: str = "change") -> str:
    """Return the address of a page of a row."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
    return reverse(name, args=[quote(str(key))], current_app=site.name)


def job_url(job_id: int | str, site: admin.AdminSite = admin.site, *, backend: str | None = None) -> str:
    """Return the address of a job's page. It stays valid when the job finishes: the page of a live job redirects.

    ``backend``: the entry of TASKS that has the job, as in ``TaskResult.backend``; None: the default one of the admin.
    """
    return page_url(site, Job, job_id if backend is None else source_named(backend).key(job_id))


def model_of(state: str) -> type[Job] | type[FinishedJob]:
    """Return the model under which jobs in a state are listed."""
    return FinishedJob if JobState(state).is_final else Job


def _postgres(alias: str) -> Engine:
    from djqueue.engines.postgres.engine import (
        PostgresEngine,
    )  # imports psycopg, which a project with Redis may not have

    return PostgresEngine(alias)


def _find(request: HttpRequest) -> Source:
    match = request.resolver_match
    key = unquote(match.kwargs.get("object_id") or "") if match else ""
    if alias := key.rpartition("/")[0]:
        with suppress(DjqueueError):
            return source_named(alias)
    # A page that was reached from a list knows the parameters of the list.
    before = parse_qs(request.GET.get("_changelist_filters", "")).get(BACKEND, [None])[-1]
    try:
        return source_named(request.GET.get(BACKEND, before))
    except DjqueueError as error:
        raise Http404(str(error)) from error
