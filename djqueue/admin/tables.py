"""The tables of PostgreSQL as a store: reads that cannot hang, and that load no more than a page shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar, cast

from django.db import models
from django.db.models import Count, QuerySet
from django.db.models.functions import Now

from djqueue.admin.changelist import JobChangeList
from djqueue.admin.stores import Store, database, home_of
from djqueue.api import DEFAULT_ALIAS
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.reading import ReadTooSlow, queue_names, time_limit
from djqueue.jobs.records import QueueCounts
from djqueue.models import AbstractJob, FinishedJob, Job, Queue, Worker
from djqueue.stores import PostgresStore

M = TypeVar("M", bound=models.Model)
COUNT_LIMIT = timedelta(seconds=2)
_CHOICES_LIMIT = timedelta(milliseconds=200)


class Tables(Store):
    has_tables = True
    job_list = JobChangeList

    def __init__(self, backends: Sequence[PostgresStore]) -> None:
        # Read where the router says, which may be a replica; the engine writes where the backend's own options say.
        self.database = database(Job)
        self.database_of_writes = home_of(backends, self.database)
        self.backends = [backend for backend in backends if backend.settings.database == self.database_of_writes]
        self.aliases = [backend.alias for backend in self.backends or backends] or [DEFAULT_ALIAS]
        self.alias = self.aliases[0]

    @property
    def engine(self) -> PostgresEngine:
        return self.backends[0].engine if self.backends else PostgresEngine(self.database_of_writes)

    def rows(self, model: type[M]) -> QuerySet[M]:
        return cast("QuerySet[M]", model._default_manager.using(database(model)).annotate(as_of=Now()))

    def job(self, id: int) -> AbstractJob | None:
        """Read a job from whichever table holds it; its ``state`` tells which.

        One statement over both: two could meet a job that is just finishing in neither.
        """
        live, finished = (
            model._default_manager.using(self.database).filter(pk=id).annotate(as_of=Now())
            for model in (Job, FinishedJob)
        )
        return live.union(finished, all=True).first()

    def jobs(self, ids: Collection[int]) -> list[AbstractJob]:
        """Read jobs from whichever table holds them, without what strangers sent."""
        live, finished = (
            model._default_manager.using(self.database).filter(pk__in=ids).only("id", "state", "task", "queue")
            for model in (Job, FinishedJob)
        )
        return list(live.union(finished, all=True))

    def queue(self, name: str) -> Queue | None:
        return self.rows(Queue).filter(pk=name).first()

    def workers(self, ids: Collection[str] | None = None) -> list[Worker]:
        workers = self.rows(Worker)
        return list(workers if ids is None else workers.filter(pk__in=ids))

    def counts(self) -> Mapping[str, QueueCounts] | None:
        try:
            with time_limit(self.database_of_writes, COUNT_LIMIT):
                return {count.queue: count for count in self.engine.counts()}
        except ReadTooSlow:
            return None

    def queue_names(self, *more: str | None) -> list[str]:
        names = {name for name in more if name}
        for backend in self.backends:
            names.update(backend.queues, backend.settings.queues)
        names.update(Queue.objects.using(self.database).values_list("name", flat=True)[:200])
        try:
            with time_limit(self.database, _CHOICES_LIMIT):
                names.update(queue_names(self.database))
        except ReadTooSlow:
            # Dead entries at the index's head: VACUUM is behind. A list with fewer choices is better than none.
            pass
        return sorted(names)

    def count_states(self, everything: QuerySet[AbstractJob]) -> Mapping[str, int] | None:
        try:
            with time_limit(self.database, COUNT_LIMIT):
                rows = everything.order_by().values("state").annotate(count=Count("pk"))
                return Counter({row["state"]: row["count"] for row in rows})
        except ReadTooSlow:
            return None

    def pages(self, everything: QuerySet[AbstractJob], size: int) -> Iterator[list[int]]:
        # Up to the newest of now: what is enqueued meanwhile would keep it going.
        ordered = everything.order_by("pk").values_list("pk", flat=True)
        last = everything.order_by("-pk").values_list("pk", flat=True).first()
        after = 0
        while last is not None and (ids := list(ordered.filter(pk__gt=after, pk__lte=last)[:size])):
            yield ids
            after = ids[-1]
