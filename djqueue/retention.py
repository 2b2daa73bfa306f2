"""How long finished jobs are kept, as people write it: ages like "30 days", counts, per state, queue and task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from djqueue.records import PruneRule
from djqueue.states import FINAL_STATES, JobState

LONGEST = timedelta(days=36_500)
MOST_JOBS = 1_000_000_000

_UNITS = {
    "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600,
    "d": 86_400, "day": 86_400, "w": 604_800, "week": 604_800, "year": 31_557_600,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?:\s+|$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept of the finished jobs in one state. Both None: all of them, for ever."""

    age: timedelta | None = None
    count: int | None = None


Retention = Mapping[JobState, Keep]

DEFAULT_RETENTION: Retention = {
    JobState.COMPLETED: Keep(timedelta(days=1)),
    JobState.DISCARDED: Keep(timedelta(days=30)),
    JobState.CANCELLED: Keep(timedelta(days=7)),
}


def parse_duration(value: object) -> timedelta:
    """Read a timedelta, seconds, or words like "1 day 12 hours"; raise ``ValueError`` with a sentence."""
    seconds: float | None = None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = _seconds(value.strip().lower())
    # The comparison is False for NaN too.
    if seconds is None or not 0 <= seconds <= LONGEST.total_seconds():
        raise ValueError(
            f'{value!r} is no duration from 0 to 100 years: a timedelta, seconds, or words like "30 days" or "1 day 12 hours".'
        )
    return timedelta(seconds=seconds)


def parse_retention(where: str, value: object) -> tuple[dict[JobState, Keep], list[str]]:
    """Read the option ``retention``; return the rules that are good, and a sentence about each that is not."""
    if not isinstance(value, Mapping):
        value = dict.fromkeys(sorted(FINAL_STATES), value)  # one rule for all of them
    rules: dict[JobState, Keep] = {}
    problems: list[str] = []
    for state, keep in value.items():
        if state not in FINAL_STATES:
            problems.append(
                f"{state!r} is no state of a finished job. {where} may say: {', '.join(sorted(FINAL_STATES))}."
            )
            continue
        try:
            rules[JobState(state)] = _keep(keep)
        except ValueError as error:
            problems.append(f"{where}[{str(state)!r}]: {error}")
    return rules, problems


def prune_rules(general: Retention, queues: Mapping[str, Retention], tasks: Mapping[str, Retention]) -> list[PruneRule]:
    """Return the rules for the engine. A queue or task says only what differs."""
    places: list[tuple[Retention, dict[str, str]]] = [(general, {})]
    places += [(retention, {"queue": queue}) for queue, retention in queues.items()]
    places += [(retention, {"task": task}) for task, retention in tasks.items()]
    return [
        PruneRule(state, keep.age, keep.count, **place)
        for retention, place in places
        for state, keep in retention.items()
    ]


def _keep(value: Any) -> Keep:
    if value is None:
        return Keep()
    if not isinstance(value, Mapping):
        return Keep(parse_duration(value))
    if unknown := set(value) - {"age", "count"}:
        raise ValueError(f"a rule says 'age', 'count' or both, not {', '.join(sorted(map(repr, unknown)))}.")
    count = value.get("count")
    if count is not None and (type(count) is not int or not 0 <= count <= MOST_JOBS):
        raise ValueError(f"'count' is a number of jobs from 0 to {MOST_JOBS}, not {count!r}.")
    age = value.get("age")
    return Keep(None if age is None else parse_duration(age), count)


def _seconds(text: str) -> float | None:
    seconds = 0.0
    rest = re.sub(r",|\band\b", " ", text).strip()
    while rest:
        match = _PART.match(rest)
        if match is None or match[2] not in _UNITS:
            return None
        seconds += float(match[1]) * _UNITS[match[2]]
        rest = rest[match.end() :]
    return seconds if text else None
