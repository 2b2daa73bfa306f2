"""Read times that PostgreSQL can store and Python cannot: infinity, and those before the year 1 or after 9999.

djqueue writes none, but users who edit a row by hand can, and psycopg then raises an error for every read that includes
the row. So a result with such a time is read again, with the first or last time that Python can represent instead.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.types.datetime import TimestamptzLoader

FIRST = datetime(1, 1, 2, tzinfo=UTC)
LAST = datetime(9999, 1, 1, tzinfo=UTC)
"""Not the very first and last times of Python: converted to some time zones, those are out of range."""


def rows_of(cursor: Any) -> list[Any]:
    """Return all rows of a cursor, psycopg's or Django's, with time-zone-aware times."""
    if getattr(getattr(cursor, "db", None), "timezone", UTC) is None:
        return _read_again(cursor)  # USE_TZ = False: Django would drop the time zone
    try:
        return list(cursor.fetchall())
    except Exception as error:
        # Django wraps both the error and the cursor.
        if not isinstance(error, psycopg.DataError) and not isinstance(error.__cause__, psycopg.DataError):
            raise
        return _read_again(cursor)


def _read_again(cursor: Any) -> list[Any]:
    raw = getattr(cursor, "cursor", cursor)
    reader = Transformer(_adapters)
    reader.set_pgresult(raw.pgresult)
    return list(reader.load_rows(0, raw.pgresult.ntuples, tuple))


class _AnyTime(TimestamptzLoader):
    def load(self, data: Any) -> datetime:
        try:
            return max(FIRST, min(LAST, super().load(data)))
        except psycopg.DataError:
            text = bytes(data)
            return FIRST if text.startswith(b"-") or text.endswith(b"BC") else LAST


_adapters = AdaptersMap(psycopg.adapters)
_adapters.register_loader("timestamptz", _AnyTime)
