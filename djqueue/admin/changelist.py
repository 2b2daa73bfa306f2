"""The list of jobs at a million rows.

Django's own list counts all rows, then pages by OFFSET: both read everything that they skip, and on a table that
moves, page 2 shows again what was just on page 1. Here a page is read along an index from a key (``after``,
``before``), so each page costs the same and shows each row once. The number of rows is exact where it
can be counted in a moment; else it is a lower bound, with the planner's estimate beside it.

A filter without an index may have to look at the whole table to fill a page. It gets two seconds; then the list
shows what the next 100,000 rows hold, says so, and has a link to search on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.paginator import Paginator
from django.db.models import F, Model, Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext

from djqueue.admin.glance import Glance, read
from djqueue.admin.lists import JobList
from djqueue.engines.postgres.reading import ReadTooSlow, time_limit
from djqueue.jobs.states import JobState
from djqueue.models import AbstractJob, FinishedJob, Job

LIST_FIELDS = (
    "id",
    "state",
    "queue",
    "task",
    "priority",
    "attempt",
    "max_attempts",
    "attempted_by",
    "attempted_at",
    "inserted_at",
    "ready_at",
    "scheduled_at",
    "finished_at",
)
"""What a list loads: no JSON, of which each row may hold a quarter of a megabyte."""

READ_LIMIT = timedelta(seconds=2)
COUNT_LIMIT = timedelta(milliseconds=100)
WINDOW = 100_000
"""How many rows a search looks through when looking through all of them took too long."""

if TYPE_CHECKING:
    JobPaginator = Paginator[AbstractJob]
else:
    JobPaginator = Paginator


class BoundedPaginator(JobPaginator):
    """Count exactly what can be counted in a moment; else know of ``limit`` rows for certain, and what the planner believes."""

    limit = 10_000
    is_exact = True
    at_least = 0
    """How many there are for certain."""
    estimate = 0
    """What the planner believes, if it was asked."""

    @cached_property
    def count(self) -> int:
        queryset: QuerySet[AbstractJob] = self.object_list  # type: ignore[assignment]
        queryset = queryset.order_by()
        if (count := self._count(queryset.values("pk")[: self.limit + 1])) is not None and count <= self.limit:
            return count
        self.at_least = count or 0
        # Most tables of a few hundred thousand rows are counted in that time, too.
        if count is not None and (everything := self._count(queryset)) is not None:
            return everything
        self.is_exact = False
        [plan] = json.loads(queryset.explain(format="json"))
        self.estimate = int(plan["Plan"]["Plan Rows"])
        return max(self.at_least, self.estimate)

    def _count(self, queryset: QuerySet[Any]) -> int | None:
        try:
            with time_limit(queryset.db, COUNT_LIMIT):
                return queryset.count()
        except ReadTooSlow:
            return None


@dataclass(frozen=True)
class Keyset:
    """The columns that order a list, newest first; together they are unique and an index serves them."""

    fields: tuple[str, ...]

    def ordering(self, *, is_reversed: bool = False, is_sparse: bool = False) -> list[Any]:
        """Order a list. ``is_sparse`` keeps the planner from walking the index in the hope of a full page soon."""
        if is_sparse:
            terms = [F(field) + 0 for field in self.fields]
            return [term.asc() if is_reversed else term.desc() for term in terms]
        return [field if is_reversed else f"-{field}" for field in self.fields]

    def beyond(self, values: Sequence[Any], *, is_reversed: bool = False, inclusive: bool = False) -> Q:
        """Select what comes after a key, in the list's order or against it."""
        side = "gt" if is_reversed else "lt"
        condition = Q(**{f"{self.fields[-1]}__{side}{'e' if inclusive else ''}": values[-1]})
        for field, value in zip(self.fields[-2::-1], values[-2::-1], strict=True):
            # The first half alone says it all; the second is the one that an index can be searched by.
            condition = (Q(**{f"{field}__{side}": value}) | condition) & Q(**{f"{field}__{side}e": value})
        return condition

    def encode(self, values: Sequence[Any]) -> str:
        return "_".join(value.isoformat() if isinstance(value, datetime) else str(value) for value in values)

    def decode(self, text: str) -> tuple[Any, ...]:
        parts = text.split("_")
        if len(parts) != len(self.fields):
            raise IncorrectLookupParameters(f"{text!r} is no place in this list.")
        try:
            return tuple(
                _bigint(part) if field == "id" else _aware(part) for field, part in zip(self.fields, parts, strict=True)
            )
        except ValueError as error:
            raise IncorrectLookupParameters(str(error)) from error

    def key(self, job: AbstractJob) -> tuple[Any, ...]:
        return tuple(getattr(job, field) for field in self.fields)


KEYSETS: dict[type[Model], Keyset] = {Job: Keyset(("id",)), FinishedJob: Keyset(("finished_at", "id"))}


OLDEST: dict[type[Model], str] = {Job: "0", FinishedJob: "0001-01-02T00:00:00+00:00_0"}
"""A place before all jobs of a list."""


def _bigint(text: str) -> int:
    number = int(text)
    if abs(number) >= 2**63:
        raise ValueError(f"{text} is too large.")
    return number


def _aware(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone.")
    return at


class JobChangeList(JobList):
    """One page of jobs, from a key on."""

    took = timedelta(0)

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        # Out of the parameters, so that a filter or a search starts at the newest row again.
        self.after, self.before = self.take("after"), self.take("before")
        # Sorting by other columns would sort the table.
        self.take("o")
        # What executes is few and, being old, at the far end of the list. The planner has no statistics of states: it
        # walks a million index entries to it, five times slower than the table can be read.
        self.is_sparse = self.model is Job and self.params.get("state") == JobState.EXECUTING
        queryset: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        queryset = queryset.only(*LIST_FIELDS).annotate(as_of=Now())
        return queryset

    def glances(self, jobs: Sequence[AbstractJob]) -> Mapping[Any, Glance]:
        return read(self.root_queryset.db, jobs)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[AbstractJob]) -> list[Any]:
        return list(KEYSETS[self.model].ordering())

    def get_results(self, request: HttpRequest) -> None:
        keyset, size = KEYSETS[self.model], self.list_per_page
        jobs: list[AbstractJob] = []
        is_before = False
        if self.before:
            jobs = self._read(keyset.decode(self.before), is_reversed=True)
            # A newer page that is not full is the first page: show that one whole.
            is_before = len(jobs) > size or bool(self.notice)
        if is_before:
            has_newer, has_older = True, True
            jobs = jobs[:size][::-1]
        else:
            place = keyset.decode(self.after) if self.after and not self.before else None
            jobs = self._read(place)
            has_newer, has_older = place is not None, len(jobs) > size
            jobs = jobs[:size]

        if has_newer:
            self.newest_url = self.get_query_string()
            if jobs and not self.notice:
                self.newer_url = self._url("before", keyset.key(jobs[0]))
        if has_older and jobs and not self.older_url:
            self.older_url = self._url("after", keyset.key(jobs[-1]))

        if has_older:
            self.oldest_url = self.get_query_string({"before": OLDEST[self.model]})

        self.paginator = BoundedPaginator(self.queryset, size)
        if not (has_newer or has_older or self.notice):
            self.result_count, is_exact = len(jobs), True
        elif self.notice or self.took > COUNT_LIMIT:
            # What finds a hundred rows so slowly will not count ten thousand in time.
            self.result_count, is_exact = len(jobs), False
        else:
            self.result_count, is_exact = self.paginator.count, self.paginator.is_exact
        self.count_words = self._count_words(is_exact)
        self.is_uncounted = not is_exact
        # Django shows the number of results beside the search box when the two differ.
        self.full_result_count = None if is_exact and self.has_active_filters_or_query else self.result_count
        self.show(request, jobs)

    def _url(self, name: str, key: Sequence[Any]) -> str:
        if any(value is None for value in key):
            return ""
        return self.get_query_string({name: KEYSETS[self.model].encode(key)})

    def _read(self, place: Sequence[Any] | None, *, is_reversed: bool = False) -> list[AbstractJob]:
        """Read a page and one row more, from a place on; look through a window only if all takes too long."""
        keyset, size = KEYSETS[self.model], self.list_per_page + 1
        ordering = keyset.ordering(is_reversed=is_reversed, is_sparse=self.is_sparse)
        queryset = self.queryset.order_by(*ordering)
        everything = self.root_queryset.order_by(*keyset.ordering(is_reversed=is_reversed))
        if place is not None:
            beyond = keyset.beyond(place, is_reversed=is_reversed)
            queryset, everything = queryset.filter(beyond), everything.filter(beyond)
        try:
            started = time.monotonic()
            with time_limit(queryset.db, READ_LIMIT):
                jobs = list(queryset[:size])
            self.took = timedelta(seconds=time.monotonic() - started)
            return jobs
        except ReadTooSlow:
            pass
        self.notice = gettext("Looking through all jobs took too long.")
        try:
            with time_limit(queryset.db, READ_LIMIT):
                end = everything.values_list(*keyset.fields)[WINDOW : WINDOW + 1].first()
                if end is not None:
                    # What the window holds: all from the place on, less what lies beyond the window's end.
                    queryset = queryset.filter(keyset.beyond(end, is_reversed=not is_reversed, inclusive=True))
                jobs = list(queryset[:size])
        except ReadTooSlow:
            self.notice += " " + gettext("Choose a time, a state or a queue.")
            return []
        self.notice += " " + gettext("Shown is what the next %(count)s hold.") % {"count": f"{WINDOW:,}"}
        if len(jobs) < size and end is not None and not is_reversed:
            self.older_url = self._url("after", end)
        return jobs

    def _count_words(self, is_exact: bool) -> str:
        count = f"{self.result_count:,}"
        if is_exact:
            return ngettext("%(count)s job", "%(count)s jobs", self.result_count) % {"count": count}
        if self.notice:
            return gettext("%(count)s shown") % {"count": count}
        certain = max(self.paginator.at_least - 1, self.list_per_page)
        words = gettext("more than %(count)s jobs") % {"count": f"{certain:,}"}
        estimate = self.paginator.estimate
        if self.has_active_filters_or_query or estimate <= certain:
            # The planner knows next to nothing about a filter's share, least of all of states, and nothing of a table that
            # has grown since it was analyzed.
            return words
        # As many digits as an estimate deserves.
        estimate = round(estimate, -(len(str(estimate)) - 2))
        return gettext("%(words)s, %(count)s by the planner's estimate") % {"words": words, "count": f"{estimate:,}"}
