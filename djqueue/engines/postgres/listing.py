"""Lists of jobs at a million rows.

A page is read along an index from a position on, so each page costs the same and shows each job once, however the table
moves. The rows are light: no JSON column is read, except for the beginnings of arguments and errors of the jobs of the page.

A filter without an index may have to read the whole table to fill a page. It gets two seconds; then the page holds what
matches among the next 100,000 jobs, and the next page continues from there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections

from djqueue.engines.listing import BEGINNING, READ_LIMIT, invalid_position, states_of_list
from djqueue.engines.postgres.application import Application, states_of
from djqueue.engines.postgres.moments import FIRST, rows_of
from djqueue.engines.postgres.reading import ReadTooSlow, time_limit
from djqueue.engines.postgres.statements import sql
from djqueue.jobs.lists import JobFilter, JobPage, ListedJob, Tally
from djqueue.jobs.records import NOBODY
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState

BEGINNINGS_LIMIT = timedelta(milliseconds=500)
COUNT_LIMIT = timedelta(milliseconds=100)
COUNT_EXACTLY = 10_000
"""Up to so many jobs are counted however long the table is."""
WINDOW = 100_000
"""How many jobs a search reads when reading all of them took too long."""

_COLUMNS = (
    "id, state, queue, task, priority, attempt, max_attempts, attempted_by, attempted_at, inserted_at, ready_at,"
    " scheduled_at, finished_at"
)
_TABLES = ("djqueue_job", "djqueue_finishedjob")
_WITHOUT_READY_AT = {JobState.SCHEDULED, JobState.RETRYABLE, JobState.SUSPENDED}


class _List:
    """The table that a filter is about, its order, and the conditions of the filter."""

    def __init__(self, alias: str, jobs: JobFilter) -> None:
        states = set(states_of_list(jobs))
        self.is_finished = bool(states & set(FINAL_STATES))
        self.alias = alias
        self.table = _TABLES[self.is_finished]
        self.key = ("finished_at", "id") if self.is_finished else ("id",)
        # Few jobs execute, and being old they are at the far end of the list. The planner has no statistics of states: it
        # would walk a million index entries to them, five times slower than the table can be read.
        self.is_sparse = states == {JobState.EXECUTING}
        self.is_slow = False
        since = self.key[0] if self.is_finished else "inserted_at"
        self.conditions = [sql("_filter").replace("{age}", since)]
        # A constant instead of the clock, which changes from row to row: only that can be searched by in an index.
        self.params: dict[str, Any] = {**filter_params(jobs), "now": datetime.now(UTC)}
        if states == set(FINAL_STATES if self.is_finished else LIVE_STATES):
            self.params["states"] = None
        elif not self.is_finished and len({state in _WITHOUT_READY_AT for state in states}) == 1:
            # Says the same again in the words of the partial indexes. About states the planner knows nothing, by our own wish
            # (see migration 0001); about this it does.
            self.conditions.append(f"ready_at IS {'' if states & _WITHOUT_READY_AT else 'NOT '}NULL")

    def select(self, columns: str, *more: str, order: str = "", limit: int | None = None, offset: int = 0) -> str:
        conditions = " AND ".join([*self.conditions, *more])
        text = f"SELECT {columns} FROM {self.table} WHERE {conditions}{order}"  # noqa: S608  our own words
        if limit is not None:
            text += f" LIMIT {limit:d}"
        return text + (f" OFFSET {offset:d}" if offset else "")

    def order(self, *, is_reversed: bool) -> str:
        # An expression is in no index, which keeps the planner from walking one.
        terms = [f"{name} + 0" if self.is_sparse else name for name in self.key]
        return " ORDER BY " + ", ".join(f"{term} {'ASC' if is_reversed else 'DESC'}" for term in terms)

    def beyond(self, position: Sequence[Any] | None, *, is_reversed: bool, inclusive: bool = False) -> list[str]:
        """Return the condition that selects what comes after a position, in the list's order or against it."""
        if position is None:
            return []
        name = f"{'from' if is_reversed else 'to'}_{'end' if inclusive else 'start'}"
        names = [f"{name}_{number}" for number, _ in enumerate(position)]
        self.params |= dict(zip(names, position, strict=True))
        sign = (">" if is_reversed else "<") + ("=" if inclusive else "")
        places = ", ".join(f"%({each})s" for each in names)
        return [f"({', '.join(self.key)}) {sign} ({places})"]

    def run(self, text: str, limit: timedelta) -> list[Any]:
        with time_limit(self.alias, limit), connections[self.alias].cursor() as cursor:
            cursor.execute(text, self.params)
            return rows_of(cursor)

    def encode(self, job: Any) -> str:
        values = (job.finished_at, job.id) if self.is_finished else (job.id,)
        return "_".join(value.isoformat() if isinstance(value, datetime) else str(value) for value in values)

    def decode(self, text: str) -> list[Any] | None:
        if not text:
            return None
        try:
            *times, id = text.split("_")
            position: list[Any] = [*map(datetime.fromisoformat, times), int(id)]
            if len(position) == len(self.key) and abs(position[-1]) < 2**63 and all(at.tzinfo for at in position[:-1]):
                return position
        except ValueError:
            pass
        raise invalid_position(text)

    @property
    def oldest(self) -> str:
        return f"{FIRST.isoformat()}_0" if self.is_finished else "0"


def filter_params(jobs: JobFilter) -> dict[str, Any]:
    """Return the parameters of ``_filter.sql``."""
    params: dict[str, Any] = {**asdict(jobs), "states": states_of(jobs.states or ())}
    if jobs.task_part is not None:
        # The database changes the case of both sides: its rules, which depend on the locale, are not those of Python.
        params["task_part"] = "%" + re.sub(r"([%_\\])", r"\\\1", jobs.task_part) + "%"
    return params


class PostgresListing(Application):
    def page(self, jobs: JobFilter, *, after: str = "", before: str = "", limit: int = 100) -> JobPage:
        listed = _List(self.alias, jobs)
        if before:
            # One more than a page tells whether there are others.
            found, is_cut, _ = _read(listed, listed.decode(before), limit + 1, is_reversed=True)
            if len(found) > limit or is_cut:
                rows = found[:limit][::-1]
                return _page(listed, rows, is_first=False, has_older=bool(rows), is_cut=is_cut)
            # A page before that is not full is the first one: show that whole.
        start = None if before else listed.decode(after)
        rows, is_cut, on = _read(listed, start, limit + 1, is_reversed=False)
        has_older = len(rows) > limit
        return _page(listed, rows[:limit], is_first=start is None, has_older=has_older, is_cut=is_cut, on=on)

    def get_many(self, ids: Collection[int]) -> list[ListedJob]:
        # One statement over both tables: two could meet a job that is just finishing in neither.
        tables = (f"SELECT {_COLUMNS} FROM {name} WHERE id = ANY(%(ids)s)" for name in _TABLES)  # noqa: S608  our own words
        with connections[self.alias].cursor() as cursor:
            cursor.execute(" UNION ALL ".join(tables) + " ORDER BY id", {"ids": [id for id in ids if 0 < id < 2**63]})
            return _jobs(rows_of(cursor))

    def tally(self, jobs: JobFilter) -> Tally:
        """Count to the end if that is quick, otherwise up to 10,000, with the planner's estimate."""
        listed = _List(self.alias, jobs)
        some = listed.select("id", limit=COUNT_EXACTLY + 1)
        count = _count(listed, f"SELECT count(*) FROM ({some}) AS found")  # noqa: S608  our own words
        if count is not None and count <= COUNT_EXACTLY:
            return Tally(count)
        # Most tables of a few hundred thousand rows are counted in that time, too.
        if count is not None and (everything := _count(listed, listed.select("count(*)"))) is not None:
            return Tally(everything)
        return Tally(max(0, (count or 0) - 1), is_exact=False, estimate=_estimate(listed))

    def count_states(self, jobs: JobFilter, *, limit: timedelta) -> dict[str, int] | None:
        listed = _List(self.alias, jobs)
        try:
            return dict(listed.run(f"{listed.select('state, count(*)')} GROUP BY state", limit))
        except ReadTooSlow:
            return None


def _page(
    listed: _List, rows: list[ListedJob], *, is_first: bool, has_older: bool, is_cut: bool, on: str | None = ""
) -> JobPage:
    older = listed.encode(rows[-1]) if has_older and rows else on or ""
    return JobPage(
        _with_beginnings(listed, rows),
        newer=listed.encode(rows[0]) if rows and not is_first and not is_cut else "",
        older=older,
        oldest=listed.oldest if has_older else "",
        sorted_by=listed.key[0],
        is_first=is_first,
        is_cut=is_cut,
        is_slow=is_cut or listed.is_slow,
        looked_at=(0 if on is None else WINDOW) if is_cut else None,
    )


def _read(
    listed: _List, start: Sequence[Any] | None, limit: int, *, is_reversed: bool
) -> tuple[list[ListedJob], bool, str | None]:
    """Return jobs from a position on, whether the search was cut, and where it continues (None: not even the window was read)."""
    order, beyond = listed.order(is_reversed=is_reversed), listed.beyond(start, is_reversed=is_reversed)
    try:
        started = time.monotonic()
        found = _jobs(listed.run(listed.select(_COLUMNS, *beyond, order=order, limit=limit), READ_LIMIT))
        listed.is_slow = time.monotonic() - started > COUNT_LIMIT.total_seconds()
        return found, False, ""
    except ReadTooSlow:
        pass
    everything = _List(listed.alias, JobFilter(states=FINAL_STATES if listed.is_finished else LIVE_STATES))
    ends = everything.select(
        ", ".join(listed.key),
        *everything.beyond(start, is_reversed=is_reversed),
        order=everything.order(is_reversed=is_reversed),
        limit=1,
        offset=WINDOW,
    )
    try:
        end = next(iter(everything.run(ends, READ_LIMIT)), None)
        # What the window holds: all from the position on, less what lies beyond the window's end.
        beyond += listed.beyond(end, is_reversed=not is_reversed, inclusive=True)
        found = _jobs(listed.run(listed.select(_COLUMNS, *beyond, order=order, limit=limit), READ_LIMIT))
    except ReadTooSlow:
        return [], True, None
    is_at_end = len(found) < limit and end is not None and not is_reversed
    on = "_".join(each.isoformat() if isinstance(each, datetime) else str(each) for each in end) if is_at_end else ""  # type: ignore[union-attr]
    return found, True, on


def _jobs(rows: list[Any]) -> list[ListedJob]:
    return [
        job if job.attempted_by != NOBODY else job._replace(attempted_by=None, attempted_at=None)
        for job in (ListedJob(*row) for row in rows)
    ]


def _with_beginnings(listed: _List, jobs: list[ListedJob]) -> list[ListedJob]:
    """Add the beginnings of arguments and last errors. Where reading them takes too long the list does without."""
    if not jobs:
        return jobs
    texts = ["args::text", "kwargs::text", "errors -> -1 ->> 'exception'", "errors -> -1 ->> 'message'"]
    columns = ", ".join(f"left({text}, {BEGINNING})" for text in texts)
    chosen = _List(listed.alias, JobFilter(states=FINAL_STATES if listed.is_finished else LIVE_STATES))
    chosen.params["ids"] = [job.id for job in jobs]
    try:
        rows = chosen.run(chosen.select(f"id, {columns}", "id = ANY(%(ids)s)"), BEGINNINGS_LIMIT)
    except ReadTooSlow:
        return jobs
    found = {id: [text or "" for text in rest] for id, *rest in rows}
    return [ListedJob._make([*job[:-4], *found.get(job.id, job[-4:])]) for job in jobs]


def _estimate(listed: _List) -> int:
    with connections[listed.alias].cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {listed.select('id')}", listed.params)
        plan = cursor.fetchone()[0]
    [plan] = json.loads(plan) if isinstance(plan, str) else plan
    return int(plan["Plan"]["Plan Rows"])


def _count(listed: _List, text: str) -> int | None:
    try:
        return int(listed.run(text, COUNT_LIMIT)[0][0])
    except ReadTooSlow:
        return None
