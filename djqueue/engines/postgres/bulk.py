"""Store many jobs of one kind by COPY.

COPY is five times as fast as INSERT from arrays, but it returns nothing, computes nothing and has no ON CONFLICT. So ids
and times are read before it, and jobs with unique keys are inserted by ``unique.py`` instead. A connection cannot run
another statement while a COPY is open, so all jobs are checked and encoded before it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.statements import sql
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import InsertedMany, NewJob


def copy_jobs(
    connection: BaseDatabaseWrapper, job: NewJob, arguments: Sequence[Encoded], now: datetime | None
) -> InsertedMany:
    """Store one job per element of ``arguments``, all or none, in two statements."""
    with connection.cursor() as cursor:
        params: dict[str, Any] = {
            "count": len(arguments),
            "scheduled_at": job.scheduled_at,
            "delay": job.delay,
            "expires_at": job.expires_at,
            "max_age": job.max_age,
            "now": now,
        }
        cursor.execute(sql("reserve"), params)
        [(first, scattered, inserted_at, due_at, ends_at, is_due_later)] = rows_of(cursor)
        ids: Sequence[int] = range(first, first + len(arguments)) if scattered is None else scattered
        state = "scheduled" if is_due_later else "available"
        shared = (
            state,
            job.queue,
            job.task,
            job.priority,
            job.max_attempts,
            inserted_at.isoformat(),
            "" if is_due_later else inserted_at.isoformat(),
            "" if due_at is None else due_at.isoformat(),
            "" if ends_at is None else ends_at.isoformat(),
            job.meta,
        )
        tail = "\t" + "\t".join(map(str, shared)) + "\n"
        text = "".join([f"{id}\t{args}\t{kwargs}{tail}" for id, (args, kwargs) in zip(ids, arguments, strict=True)])
        if "\\" in text:
            # The only character to escape: neither JSON nor the names contain raw tabs or newlines.
            text = text.replace("\\", "\\\\")
        through_wrappers(connection, cursor, sql("copy"), partial(copy, connection, cursor, text))
    return InsertedMany(ids, state, inserted_at)


def copy(
    connection: BaseDatabaseWrapper, cursor: Any, text: str, statement: str, params: None, many: bool, context: Any
) -> None:
    # Django wraps the errors of execute() but not those of copy(), which its debugging cursor logs.
    with connection.wrap_database_errors, cursor.copy(statement) as copy:
        copy.write(text)


def through_wrappers(
    connection: BaseDatabaseWrapper, cursor: Any, statement: str, execute: Callable[..., None]
) -> None:
    """Run a statement through the wrappers that the project has added with ``connection.execute_wrapper``."""
    for wrapper in reversed(connection.execute_wrappers):
        execute = partial(wrapper, execute)
    execute(statement, None, False, {"connection": connection, "cursor": cursor})
