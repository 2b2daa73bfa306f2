"""The lists: their columns, rows, filters, search and pages, as the template shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.contrib.admin.views.main import ALL_VAR, ERROR_FLAG, ORDER_VAR, PAGE_VAR, SEARCH_VAR
from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.utils.http import urlencode
from django.utils.translation import gettext, ngettext

from djqueue.admin.filters import Filter
from djqueue.admin.sources import BACKEND
from djqueue.jobs.lists import JobPage, Tally

AFTER, BEFORE = "after", "before"
_IGNORED = (ALL_VAR, ERROR_FLAG, PAGE_VAR, "_facets", "_popup", "_to_field", "_changelist_filters")


class Column(NamedTuple):
    name: str
    label: Any
    cell: Callable[[Any], Any]
    sort_url: str = ""
    """Empty: the list cannot be sorted by this column."""
    order: str = ""
    """``ascending`` or ``descending`` if the list is sorted by this column."""


class Row(NamedTuple):
    key: str
    url: str
    shown: Any
    """The job, worker or entry."""
    cells: list[tuple[str, Any]]


class Choice(NamedTuple):
    label: Any
    url: str
    is_selected: bool


class Query:
    """The parameters of a list's address."""

    def __init__(self, request: HttpRequest, names: Sequence[str] = ()) -> None:
        given: dict[str, str] = {name: str(value) for name, value in request.GET.items()}
        self.term = given.get(SEARCH_VAR, "")
        self.after, self.before = given.pop(AFTER, ""), given.pop(BEFORE, "")
        self.order = given.pop(ORDER_VAR, "")
        self.params = {name: value for name, value in given.items() if name not in _IGNORED}
        self.filters = {name: self.params[name] for name in names if name in self.params}
        """The parameters of the filters that are set."""
        if unknown := set(self.params) - {*names, SEARCH_VAR, BACKEND}:
            raise BadRequest(f"Invalid filter {', '.join(sorted(unknown))!r:.200}: use {', '.join(names) or 'none'}.")

    @property
    def is_narrowed(self) -> bool:
        return bool(self.term or any(self.filters.values()))

    def url(self, remove: Sequence[str] = (), **changes: str) -> str:
        """Return the address of the same list with other parameters; it begins at the first page unless a position is given."""
        params = {name: value for name, value in {**self.params, **changes}.items() if name not in remove}
        return f"?{urlencode(sorted(params.items()))}"

    def choices(self, each: Filter) -> list[Choice]:
        chosen = self.filters.get(each.name, "")
        return [
            Choice(
                label,
                self.url(**{each.name: value}) if value else self.url(remove=[each.name]),
                is_selected=value == chosen,
            )
            for value, label in each.choices
        ]


@dataclass
class List:
    """One page of a list. The names are those that Django's templates of a list look at."""

    opts: Any
    query: Query
    columns: list[Column] = field(default_factory=list)
    result_list: list[Row] = field(default_factory=list)
    filters: list[tuple[Any, list[Choice]]] = field(default_factory=list)
    search_help: Any = ""
    has_search: bool = True
    result_count: int = 0
    """How many match, or the lower bound that is known."""
    total: int | None = None
    """How many there are without the search, if that is known."""
    is_uncounted: bool = False
    count_words: str = ""
    notice: str = ""
    """What the reader must know about an incomplete search."""
    newest_url: str = ""
    newer_url: str = ""
    older_url: str = ""
    oldest_url: str = ""
    footnote: Any = ""

    @property
    def clear_url(self) -> str:
        return self.query.url(remove=list(self.query.filters))

    def fill(self, shown: Sequence[tuple[str, str, Any]], columns: Sequence[Column]) -> None:
        """Make rows of what is shown: key, address and the thing itself."""
        self.columns = list(columns)
        self.result_list = [
            Row(key, url, thing, [(column.name, column.cell(thing)) for column in columns]) for key, url, thing in shown
        ]

    def turn(self, page: JobPage, tally: Tally | None) -> None:
        """Add the links to other pages, and how many match."""
        query = self.query
        if not page.is_first:
            self.newest_url = query.url()
        if page.newer:
            self.newer_url = query.url(**{BEFORE: page.newer})
        if page.older:
            self.older_url = query.url(**{AFTER: page.older})
        if page.oldest:
            self.oldest_url = query.url(**{BEFORE: page.oldest})
        shown = len(page.jobs)
        self.notice = _notice(page)
        self.is_uncounted = tally is None or not tally.is_exact
        self.result_count = shown if tally is None else max(tally.number, shown, tally.estimate)
        count = f"{self.result_count:,}"
        if tally is not None and tally.is_exact:
            self.count_words = ngettext("%(count)s job", "%(count)s jobs", self.result_count) % {"count": count}
        elif tally is None:
            self.count_words = gettext("%(count)s shown") % {"count": f"{shown:,}"}
        else:
            self.count_words = _bound(max(tally.number, shown), 0 if query.is_narrowed else tally.estimate)


def _notice(page: JobPage) -> str:
    if not page.is_cut:
        return ""
    notice = gettext("Searching all jobs took too long.")
    if page.looked_at is None:
        return f"{notice} {gettext('This page shows what was found so far.')}"
    if page.looked_at == 0:
        return f"{notice} {gettext('Choose a time, a state or a queue.')}"
    words = gettext("This page shows the matches among the next %(count)s jobs.") % {"count": f"{page.looked_at:,}"}
    return f"{notice} {words}"


def _bound(certain: int, estimate: int) -> str:
    words = gettext("more than %(count)s jobs") % {"count": f"{certain:,}"}
    if estimate <= certain:
        # The planner knows next to nothing about the share of a filter, least of all of states, and nothing of a table that
        # has grown since it was analyzed.
        return words
    # As many digits as an estimate deserves.
    estimate = round(estimate, -(len(str(estimate)) - 2))
    return gettext("%(words)s, about %(count)s by the planner's estimate") % {"words": words, "count": f"{estimate:,}"}


def matching(rows: Sequence[Any], term: str, names: Sequence[str]) -> list[Any]:
    """Return the rows that contain every word of a search term."""
    words = term.lower().split()
    return [
        row for row in rows if all(any(word in str(getattr(row, name)).lower() for name in names) for word in words)
    ]


def ordered(
    rows: Sequence[Any], order: str, names: Sequence[str], sortable: Mapping[str, Callable[[Any], Any]]
) -> list[Any]:
    """Sort rows by the columns that ``?o=2.-3`` names, as Django's lists do; what names no column is passed over."""
    rows = list(rows)
    for part in reversed(order.split(".")):
        number = part.removeprefix("-")
        name = dict(zip(map(str, range(1, len(names) + 1)), names, strict=True)).get(number, "")
        if name in sortable:
            rows.sort(key=sortable[name], reverse=part.startswith("-"))
    return rows


def with_filters(url: str, preserved: str) -> str:
    """Add the filters of a list to the address of a row, so that its page can lead back to them."""
    return f"{url}?{preserved}" if preserved else url
