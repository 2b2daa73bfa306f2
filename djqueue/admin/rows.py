"""What an engine tells, as rows: models that are never saved, so that columns, words and templates need no second version."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar, cast

from django.db import models

from djqueue.admin.lists import JobRowList, Matching
from djqueue.admin.stores import Store
from djqueue.cron import entry as cron
from djqueue.engines.protocol import Engine
from djqueue.jobs import records
from djqueue.jobs.records import NOBODY, QueueCounts
from djqueue.models import NEVER, AbstractJob, CronEntry, FinishedJob, Job, Queue, Worker

M = TypeVar("M", bound=models.Model)
COUNT_SECONDS = 2.0
_COUNTED_AT_ONCE = 1000


class Rows(Store):
    """A store behind its engine. It lives as long as a request, and what is read once stays read."""

    job_list = JobRowList

    def __init__(self, backends: Sequence[Any]) -> None:
        self.backends = backends
        self.aliases = [backend.alias for backend in backends]
        self.alias = self.aliases[0]

    @property
    def engine(self) -> Engine:
        return self.backends[0].engine  # type: ignore[no-any-return]

    @cached_property
    def now(self) -> datetime:
        return self.engine.now()

    def rows(self, model: type[models.Model]) -> list[Any]:
        names = {Queue: "_queues", Worker: "_workers", CronEntry: "_entries"}
        return cast("list[Any]", getattr(self, names[model]))

    def job(self, id: int) -> AbstractJob | None:
        job = self.engine.get(id)
        return None if job is None else self.job_row(job)

    def jobs(self, ids: Collection[int]) -> list[AbstractJob]:
        return [job for id in ids if (job := self.job(id)) is not None]

    def queue(self, name: str) -> Queue | None:
        return next((queue for queue in self._queues if self.bare(queue.pk) == name), None)

    def workers(self, ids: Collection[str] | None = None) -> list[Worker]:
        return [worker for worker in self._workers if ids is None or self.bare(worker.pk) in ids]

    def counts(self) -> Mapping[str, QueueCounts]:
        return self._counts

    def queue_names(self, *more: str | None) -> list[str]:
        names = {name for name in more if name}
        for backend in self.backends:
            names.update(backend.queues, backend.settings.queues)
        return sorted(names.union(self._counts, (self.bare(queue.pk) for queue in self._queues)))

    def count_states(self, everything: Matching) -> Mapping[str, int] | None:
        states: Counter[str] = Counter()
        if everything.jobs is None:
            return states
        until, before = time.monotonic() + COUNT_SECONDS, None
        while True:
            page = self.engine.newest(everything.jobs, before=before, limit=_COUNTED_AT_ONCE)
            states.update(job.state.value for job in page.jobs)
            if (before := page.before) is None:
                return states
            if time.monotonic() > until:
                return None

    def pages(self, everything: Matching, size: int) -> Iterator[list[int]]:
        if everything.jobs is None:
            return
        after, last = 0, self.engine.count(everything.jobs, limit=1).last
        while ids := self.engine.find(everything.jobs, after=after, last=last, limit=size):
            yield ids
            after = ids[-1]

    def job_row(self, job: records.Job) -> AbstractJob:
        values = {field.name: getattr(job, field.name) for field in fields(job)}
        values["state"] = job.state.value
        values["attempted_by"] = job.attempted_by or NOBODY
        values["attempted_at"] = job.attempted_at or NEVER
        return self._row(FinishedJob if job.state.is_final else Job, job.id, values)

    @cached_property
    def _counts(self) -> dict[str, QueueCounts]:
        return {count.queue: count for count in self.engine.counts()}

    @cached_property
    def _queues(self) -> list[Queue]:
        return [self._row(Queue, queue.name, {**queue._asdict(), "name": None}) for queue in self.engine.queues()]

    @cached_property
    def _workers(self) -> list[Worker]:
        return [self._worker(worker) for worker in self.engine.workers()]

    @cached_property
    def _entries(self) -> list[CronEntry]:
        return [self._entry(entry) for entry in self.engine.cron.entries()]

    def _worker(self, worker: records.WorkerStatus) -> Worker:
        names = ("name", "hostname", "pid", "queues", "concurrency", "is_draining")
        values = {name: getattr(worker, name) for name in names}
        values["beat_at"] = self.now - timedelta(seconds=worker.silent_seconds)
        # When it started and died only tables tell.
        values["started_at"] = None
        values["died_at"] = self.now if worker.is_dead else None
        return self._row(Worker, worker.id, values)

    def _entry(self, entry: cron.CronEntry) -> CronEntry:
        values = {field.name: getattr(entry, field.name) for field in fields(entry)}
        definition = values.pop("definition")
        values["code"] = None if entry.code is None else entry.code.as_json()
        return self._row(CronEntry, values.pop("id"), {**asdict(definition), "args": list(definition.args), **values})

    def _row(self, model: type[M], id: object, values: Mapping[str, Any]) -> M:
        row = model(**{**values, model._meta.pk.name: self.key(id)})
        row.as_of = self.now  # type: ignore[attr-defined]
        return row
