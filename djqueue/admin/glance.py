"""What a list says about each job beside its columns: the arguments and the last error, in a line each.

A row may hold a quarter of a megabyte of them, so the list is read without; then the beginnings for the jobs of the page alone are
read, cut by the database and limited in time. Where that takes too long the list does without them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Func, TextField
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Left
from django.utils.translation import gettext

from djqueue.jobs.compression import readable
from djqueue.models import AbstractJob

LIMIT = timedelta(milliseconds=500)
MOST_CHARACTERS = 160


class Glance(NamedTuple):
    arguments: str = ""
    error: str = ""


def read(database: str, jobs: Sequence[AbstractJob]) -> dict[int, Glance]:
    """Read the beginnings of arguments and last errors of jobs of one table, by id."""
    from djqueue.engines.postgres.reading import ReadTooSlow, time_limit  # imports psycopg

    if not jobs:
        return {}
    last = KeyTransform(-1, "errors")
    texts: list[Func] = [Cast("args", TextField()), Cast("kwargs", TextField())]
    texts += [KeyTextTransform(name, last) for name in ("exception", "message")]
    rows = type(jobs[0])._default_manager.using(database).filter(pk__in=[job.pk for job in jobs])
    try:
        with time_limit(database, LIMIT):
            found = list(rows.values_list("pk", *(Left(text, MOST_CHARACTERS + 1) for text in texts)))
    except ReadTooSlow:
        return {}
    return {
        id: Glance(_arguments(args, kwargs), _error(exception, message))
        for id, args, kwargs, exception, message in found
    }


def of(job: AbstractJob) -> Glance:
    """Make it of a job that is read as a whole."""
    args, kwargs = (_text(value) for value in readable(job.args, job.kwargs))
    last = job.errors[-1] if isinstance(job.errors, list) and job.errors else None
    error = _error(last.get("exception"), last.get("message")) if isinstance(last, dict) else ""
    return Glance(_arguments(args, kwargs), error)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[: MOST_CHARACTERS + 1]


def _arguments(args: str | None, kwargs: str | None) -> str:
    if (args or "").startswith('{"zlib"'):
        return gettext("compressed arguments")
    return _cut(" ".join(text for text in (args, kwargs) if text not in (None, "", "[]", "{}")))


def _error(exception: object, message: object) -> str:
    kind = str(exception or "").rpartition(".")[2]
    first = str(message or "").strip().split("\n", 1)[0]
    return _cut(": ".join(part for part in (kind, first) if part))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
