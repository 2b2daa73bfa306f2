"""Times that PostgreSQL knows and Python does not: infinity, and those before the year 1 or after 9999.

djqueue writes none. Who edits a row by hand can, and whoever read that row, or others with it, would get an error instead:
psycopg refuses such a time. So an answer in which there is one is read again, with the first or last time that can be told.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.types.datetime import TimestamptzLoader

FIRST = datetime(1, 1, 2, tzinfo=UTC)
LAST = datetime(9999, 1, 1, tzinfo=UTC)
"""Not the very first and last: in some time zones these lie beyond."""


def rows_of(cursor: Any) -> list[Any]:
    """Return all rows of a cursor of psycopg's or Django's; their times have a zone."""
    if getattr(getattr(cursor, "db", None), "timezone", UTC) is None:
        return _read_again(cursor)  # USE_TZ = False: Django would cut the zone off
    try:
        return list(cursor.fetchall())
    except Exception as error:
        # Django wraps the error, and the cursor.
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
