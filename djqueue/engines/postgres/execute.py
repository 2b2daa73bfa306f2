"""Run statements by name in a transaction that another module has opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.statements import sql

Execute = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]


def run_on(cursor: Any) -> Execute:
    """Return a function that runs a statement by name on this cursor, which may be Django's or psycopg's."""

    def execute(name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor.execute(sql(name), params)
        return rows_of(cursor) if cursor.description else []

    return execute
