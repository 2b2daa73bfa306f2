"""Checks and conversions of a task's options.

An option is a field of ``Task`` with ``option(...)`` as its metadata; ``task.py`` reads it from there. A check returns a
sentence about what is wrong, or an empty string.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, overload

from djqueue import compat, conf
from djqueue.cron.entry import Cron
from djqueue.jobs.durations import LONGEST, parse_duration

MAX_DELAY = LONGEST
MAX_ATTEMPTS = 1_000_000

Check = Callable[[object], str]


def option(check: Check, *, per_job: bool = False, convert: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Return a field's metadata. ``per_job``: stored in the job's row, so ``using()`` can change the option for one job."""
    return {"problem_of": check, "per_job": per_job, "convert": convert}


# Checks


def max_attempts_problem(value: object) -> str:
    if value is None or (type(value) is int and 1 <= value <= MAX_ATTEMPTS):
        return ""
    return f"Invalid max_attempts {value!r}: use a whole number from 1 to {MAX_ATTEMPTS}."


def run_in_problem(value: object) -> str:
    # A negative duration means due at once, on every backend. More than 100 years in either direction is a mistake.
    if value is None or (isinstance(value, timedelta) and abs(value) <= MAX_DELAY):
        return ""
    return (
        f"Invalid run_after {value!r:.120}: use a time, or a duration of at most 100 years:"
        " a timedelta, seconds, or a text like '2 days'."
    )


def duration_problem(name: str) -> Check:
    def problem_of(value: object) -> str:
        try:
            if value is None or as_timedelta(value) > timedelta():
                return ""
        except ValueError:
            pass
        return f"Invalid {name} {value!r:.120}: use seconds, a timedelta or a text like '90s' or '2 days', more than 0."

    return problem_of


def exceptions_problem(name: str) -> Check:
    def problem_of(value: object) -> str:
        kinds = value if isinstance(value, list | tuple | set | frozenset) else (value,)
        if all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            return ""
        return f"Invalid {name} {value!r}: use an exception class or a list of them."

    return problem_of


def aliases_problem(value: object) -> str:
    if isinstance(value, list | tuple) and all(isinstance(name, str) and 0 < len(name) <= 255 for name in value):
        return ""
    return f"Invalid aliases {value!r}: use a list of the task's former names, like ['shop.tasks.old_name']."


def durability_problem(value: object) -> str:
    if value is None or value in conf.DURABILITIES:
        return ""
    return f"Invalid durability {value!r}: use {' or '.join(map(repr, conf.DURABILITIES))}."


def bool_problem(name: str) -> Check:
    return lambda value: "" if isinstance(value, bool) else f"Invalid {name} {value!r}: use True or False."


def cron_problem(value: object) -> str:
    if value is None or isinstance(value, str | Cron):
        return ""
    if isinstance(value, list | tuple) and all(isinstance(each, str | Cron) for each in value):
        return ""
    return f"Invalid cron {value!r:.200}: use an expression like '0 6 * * mon', a Cron, or a list of them."


def timezone_problem(value: object) -> str:
    if value is None or isinstance(value, str):
        return ""
    return f"Invalid timezone {value!r:.80}: use the name of a time zone like 'Europe/Berlin'."


# Conversions


@overload
def as_timedelta(value: None) -> None: ...
@overload
def as_timedelta(value: object) -> timedelta: ...
def as_timedelta(value: object) -> timedelta | None:
    return None if value is None else parse_duration(value)


def as_start(value: object) -> datetime | timedelta:
    """Convert a value of ``run_after`` to a time, or to a duration from now."""
    if isinstance(value, datetime | timedelta):
        return value
    try:
        return parse_duration(value)
    except ValueError:
        raise compat.InvalidTask(run_in_problem(value)) from None


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)


def as_crons(value: str | Cron | Sequence[str | Cron] | None) -> tuple[Cron, ...] | None:
    if value is None:
        return None
    values = [value] if isinstance(value, str | Cron) else value
    return tuple(each if isinstance(each, Cron) else Cron(each) for each in values)


def frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return frozenset(value) if isinstance(value, set) else value


# Names

_FOREIGN_METHODS = frozenset(
    ("delay", "apply_async", "apply", "send", "send_with_options", "schedule", "defer", "defer_async")
)
"""The methods that enqueue a job in other job queues."""


def missing_attribute(class_name: str, name: str) -> str:
    """Return the message of the ``AttributeError`` for an attribute that a task does not have."""
    if name in _FOREIGN_METHODS:
        return (
            f"A djqueue task has no {name}(). Call enqueue(...), or using(run_after=...).enqueue(...) to run it later."
        )
    return f"{class_name!r} object has no attribute {name!r}"


def refuse_unknown(where: str, given: Mapping[str, Any], known: Sequence[str], static: Sequence[str]) -> None:
    """Raise a ``TypeError`` that lists the keywords of ``@task`` or ``using()`` if an unknown one was given."""
    if unknown := sorted(set(given) - set(known)):
        keywords = sorted({"priority", "queue_name", "backend", "takes_context", *known})
        if where == "using()":
            keywords = sorted({*keywords, "run_after"} - {"takes_context"})
        hint = ""
        if misplaced := sorted(set(unknown) & set(static)):
            hint = f" {', '.join(misplaced)} can only be given to @task: it is the task's, not a single job's."
        raise TypeError(f"{where} does not know {', '.join(unknown)}. Its keywords are: {', '.join(keywords)}.{hint}")
