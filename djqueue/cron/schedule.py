"""A cron expression in a time zone.

Five fields, or six with the seconds last, or ``@hourly`` and its like, as croniter reads them: names, lists, ranges, steps,
``L`` (last day), ``15W`` (nearest weekday), ``fri#2`` (second Friday). Day of month and day of week are combined as cron
itself does: if either begins with ``*`` both must match, otherwise one is enough; an nth weekday and a nearest weekday,
which cron does not know, always must.

Where clocks change:

- An entry with a fixed minute and hour (neither begins with ``*``) runs once on that day. A time that the spring skips is
  made up for at the first moment after the gap; of a time that the autumn repeats, the first one counts.
- All others (``*/15 * * * *``, ``0 * * * *``) run whenever a clock on the wall shows a time that matches: at every real
  interval, in the repeated hour too.

croniter computes on wall-clock time without a zone; the mapping to real time is done here. croniter's own fires twice in
autumn, and it accepts expressions that never match.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from croniter import croniter
from croniter.croniter import CroniterBadDateError, CroniterError

REBOOT = "@reboot"
MAX_LENGTH = 200
_MAX_ITEMS = 60
_SECOND = timedelta(seconds=1)
_ALIASES = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
_WORD = r"(?:\d{1,4}|sun|mon|tue|wed|thu|fri|sat|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
# Other croniter syntax is refused: H and R give a different time in every process, and a seventh field is a year.
_ITEM = re.compile(
    rf"(?:\*|{_WORD}(?:-(?:{_WORD}|l))?)(?:/\d{{1,4}})?|\?|l|l{_WORD}|{_WORD}#[1-5]|\d{{1,2}}w|w\d{{1,2}}", re.ASCII
)
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6), (0, 59))
"""Minute, hour, day of month, month, day of week, second."""
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WORDS = {word: number for words, first in ((_DAYS, 0), (_MONTHS, 1)) for number, word in enumerate(words, first)}
# Long before any table of time zones begins, and long after the last year that a database and Python share.
_FIRST, _LAST = datetime(1900, 1, 2), datetime(9000, 1, 1)


class InvalidSchedule(ValueError):
    """The expression or time zone is invalid. The message says why."""


class Schedule:
    """The times of an expression. Not thread-safe, because croniter objects keep their position."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        """Raise ``InvalidSchedule`` for an invalid expression, one that never matches, or an unknown time zone."""
        self.expression = _normal(expression)
        self.timezone = timezone
        self._zone = _zone(timezone)
        self.is_reboot = self.expression == REBOOT
        """Whether the expression is ``@reboot``: due when a scheduler starts and at no other time."""
        if self.is_reboot:
            return
        fields = self.expression.split()
        if self.expression[0] != "@":
            _check_fields(self.expression, fields)
        try:
            self._wall = croniter(self.expression, datetime(2000, 1, 1), implement_cron_bug=True)
        except (CroniterError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise InvalidSchedule(f"Invalid cron expression {self.expression!r}: {error}.") from None
        self._is_fixed = len(fields) > 1 and not fields[0].startswith("*") and not fields[1].startswith("*")
        if len(fields) == 1:
            self._is_fixed = self.expression != "@hourly"
        # A well-formed expression may name a day that does not exist, such as 30 February.
        self._next_wall(datetime(2000, 1, 1))

    def __repr__(self) -> str:
        return f"Schedule({self.expression!r}, {self.timezone!r})"

    def next_after(self, nominal: datetime) -> datetime:
        """Return the first time after ``nominal``, in UTC. Both are aware.

        Raise ``InvalidSchedule`` if there is none within fifty years.
        """
        if self.is_reboot:
            raise InvalidSchedule("@reboot is due when a scheduler starts, and at no time.")
        nominal = nominal.astimezone(UTC)
        if not _FIRST < nominal.replace(tzinfo=None) < _LAST:
            raise InvalidSchedule(f"{nominal} is too far away for {self.expression!r}.")
        return self._next_fixed(nominal) if self._is_fixed else self._next_interval(nominal)

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the last time in (after, until], or None. Uses bisection, because the span may contain millions of times."""
        best = self.next_after(after)
        if best > until:
            return None
        end = until
        while end - best >= _SECOND:
            middle = best + (end - best) / 2
            found = self.next_after(middle)
            if found <= until:
                best = found
            else:
                end = middle
        return best

    def _next_fixed(self, nominal: datetime) -> datetime:
        wall = nominal.astimezone(self._zone).replace(tzinfo=None)
        while True:
            wall = self._next_wall(wall)
            # In a repeated hour, wall-clock times whose first occurrence has passed occur again.
            if (found := self._first_instant(wall)) > nominal:
                return found

    def _next_interval(self, nominal: datetime) -> datetime:
        local = nominal.astimezone(self._zone)
        wall = local.replace(tzinfo=None)
        again = local.replace(fold=1).astimezone(UTC)
        following = self._next_wall(wall)
        if local.fold == 0 and again > nominal and self._shows(again, wall):
            # The clock will be set back over this time: the times left before that come first, then the second pass.
            change = self._change(nominal, again)
            found = following.replace(tzinfo=self._zone).astimezone(UTC)
            if found < change:
                return found
            start = change.astimezone(self._zone).replace(tzinfo=None, fold=0)
            following = self._next_wall(start - timedelta(microseconds=1))
            return self._last_instant(following)
        while True:
            if local.fold == 1:
                found = self._last_instant(following)
            else:
                found = following.replace(tzinfo=self._zone).astimezone(UTC)
            if self._shows(found, following):
                return found
            following = self._next_wall(following)  # in a gap, where the time does not exist

    def _first_instant(self, wall: datetime) -> datetime:
        """Return the first moment at which a clock shows this time, or the first moment after the gap that contains it."""
        found = wall.replace(tzinfo=self._zone).astimezone(UTC)
        if self._shows(found, wall):
            return found
        return self._change(self._last_instant(wall), found)

    def _last_instant(self, wall: datetime) -> datetime:
        return wall.replace(tzinfo=self._zone, fold=1).astimezone(UTC)

    def _shows(self, instant: datetime, wall: datetime) -> bool:
        return instant.astimezone(self._zone).replace(tzinfo=None, fold=0) == wall.replace(fold=0)

    def _change(self, before: datetime, after: datetime) -> datetime:
        """Find the moment in (before, after] at which the offset changes."""
        offset = before.astimezone(self._zone).utcoffset()
        low, high = 0, int((after - before).total_seconds()) + 1
        while high - low > 1:
            middle = (low + high) // 2
            if (before + timedelta(seconds=middle)).astimezone(self._zone).utcoffset() == offset:
                low = middle
            else:
                high = middle
        return (before + timedelta(seconds=high)).replace(microsecond=0)

    def _next_wall(self, wall: datetime) -> datetime:
        """Return the next matching wall-clock time, ignoring changes of the offset."""
        try:
            found: datetime = self._wall.get_next(datetime, start_time=wall)
        except (CroniterBadDateError, OverflowError, ValueError):
            raise InvalidSchedule(
                f"{self.expression!r} never comes true: there is no such day within fifty years."
            ) from None
        return found.replace(tzinfo=None)


def _normal(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidSchedule(f"A cron expression is a string like '0 6 * * mon', not {expression!r:.100}.")
    if len(expression) > MAX_LENGTH:
        raise InvalidSchedule(f"A cron expression has at most {MAX_LENGTH} characters, not {len(expression):,}.")
    text = " ".join(expression.lower().split())
    if not text:
        raise InvalidSchedule("A cron expression is a string like '0 6 * * mon', and this one is empty.")
    if text.startswith("@") and text != REBOOT and text not in _ALIASES:
        raise InvalidSchedule(f"{text!r} is not one of {', '.join((*_ALIASES, REBOOT))}.")
    return text


def _check_fields(expression: str, fields: list[str]) -> None:
    if len(fields) not in (5, 6):
        raise InvalidSchedule(
            f"{expression!r} has {len(fields)} fields. There are five: minute, hour, day of month, month, day of week;"
            " a sixth is the second."
        )
    for place, field in enumerate(fields):
        items = field.split(",")
        if len(items) > _MAX_ITEMS:
            raise InvalidSchedule(f"A field of a cron expression lists at most {_MAX_ITEMS} values, not {len(items)}.")
        for item in items:
            if not _ITEM.fullmatch(item):
                raise InvalidSchedule(
                    f"Invalid cron expression {expression!r}: {item!r} is not a value, range or step."
                )
            _check_step(expression, item, *_RANGES[place])


def _check_step(expression: str, item: str, first: int, last: int) -> None:
    """Refuse a step that is longer than its range, because it would match only the first value."""
    values, _, step = item.partition("/")
    if not step:
        return
    low, _, high = values.partition("-")
    if low != "*":
        first = _number(low, first)
        last = _number(high, last) if high else last
    if last < first:
        return  # a range past the last value, as in fri-mon
    if int(step) > last - first + 1:
        raise InvalidSchedule(
            f"Invalid cron expression {expression!r}: the step of {item!r} exceeds its range, which has {last - first + 1} values."
        )


def _number(word: str, default: int) -> int:
    return int(word) if word.isdigit() else _WORDS.get(word, default)


@lru_cache(maxsize=700)
def _zone(name: str) -> tzinfo:
    try:
        # ZoneInfo reads files by name, and refuses paths and files that are not time zones.
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError, TypeError):
        raise InvalidSchedule(f"Invalid time zone {name!r:.80}: use a name like 'Europe/Berlin' or 'UTC'.") from None
