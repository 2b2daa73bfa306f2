"""The settings of a djqueue backend: the OPTIONS of its entry in TASKS.

One frozen object per backend, with every default in one place. ``parse`` raises ``InvalidOptions`` with a sentence
per mistake; ``djqueue.checks`` shows the same sentences as system checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from djqueue.exceptions import InvalidOptions

QUEUE_NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    concurrency: int | None = None
    """How many jobs of this queue one worker process runs at once, in slots of its own. None: it shares the worker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    database: str = "default"
    """The alias in DATABASES that holds the tables."""
    queues: Mapping[str, QueueOptions] = field(default_factory=dict)
    """Rules per queue: ``{"mail": {"concurrency": 20}}``."""
    max_attempts: int = 20
    """How often a job is started before it is discarded, unless its task says otherwise."""
    max_args_bytes: int = 256 * 1024
    """The most that the arguments of one job may take as JSON."""
    max_result_bytes: int = 256 * 1024
    """The most that a returned value may take as JSON; a larger one fails the job."""
    poll_interval_seconds: float = 1.0
    """How often a sleeping worker looks although nobody woke it: the net below the wake-ups."""
    listen: bool = True
    """False: no LISTEN and no wake-ups, only the poll. Needed behind a transaction-level pooler."""
    statement_timeout_seconds: float = 30.0
    """After so long the server stops a statement of a worker; when nothing was heard a third later, the worker hangs up."""
    give_up_after_seconds: float = 600.0
    """How long a worker goes on trying when the database does not answer; then it exits with code 2."""
    shutdown_timeout_seconds: float = 30.0
    """How long a stopping worker waits for the jobs that run; then they are handed back."""


_RANGES: dict[str, tuple[float, float]] = {
    "max_attempts": (1, 1_000_000),
    "max_args_bytes": (1024, 64 * 1024 * 1024),
    "max_result_bytes": (1024, 64 * 1024 * 1024),
    "poll_interval_seconds": (0.05, 3600),
    "statement_timeout_seconds": (1, 3600),
    "give_up_after_seconds": (1, 10_000_000),
    "shutdown_timeout_seconds": (0, 86_400),
}


def parse(options: object) -> Options:
    """Turn the OPTIONS of a backend into an object; raise ``InvalidOptions`` listing every mistake."""
    if not isinstance(options, Mapping):
        raise InvalidOptions(f"OPTIONS takes a dict, not {options!r}.")
    problems: list[str] = []
    known = {f.name: f for f in fields(Options)}
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in known:
            problems.append(f"There is no option {key!r}. The options are: {', '.join(sorted(known))}.")
        elif key == "queues":
            values[key] = _parse_queues(value, problems)
        elif problem := _problem(key, value, known[key].default):
            problems.append(problem)
        else:
            values[key] = value
    if problems:
        raise InvalidOptions(" ".join(problems))
    return Options(**values)


def _problem(key: str, value: object, default: object) -> str:
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else f"{key!r} takes True or False, not {value!r}."
    if isinstance(default, str):
        return "" if isinstance(value, str) else f"{key!r} takes a string, not {value!r}."
    low, high = _RANGES[key]
    is_number = isinstance(value, int if isinstance(default, int) else int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]  # a number by now
        return f"{key!r} takes a number from {low:g} to {high:g}, not {value!r}."
    return ""


def _parse_queues(value: object, problems: list[str]) -> dict[str, QueueOptions]:
    parsed: dict[str, QueueOptions] = {}
    if not isinstance(value, Mapping):
        problems.append(f"'queues' takes a dict of queue name to its rules, not {value!r}.")
        return parsed
    for name, rules in value.items():
        if not isinstance(name, str) or not QUEUE_NAME.fullmatch(name):
            problems.append(f"{name!r} is no queue name: 1 to 128 letters, digits, '_', '.', ':' or '-'.")
        elif not isinstance(rules, Mapping) or set(rules) - {"concurrency"}:
            problems.append(f"The rules of queue {name!r} are a dict with the key 'concurrency', not {rules!r}.")
        else:
            concurrency = rules.get("concurrency")
            if concurrency is not None and (type(concurrency) is not int or not 1 <= concurrency <= 10_000):
                problems.append(f"The concurrency of queue {name!r} is a number from 1 to 10000, not {concurrency!r}.")
            parsed[name] = QueueOptions(concurrency=concurrency)
    return parsed
