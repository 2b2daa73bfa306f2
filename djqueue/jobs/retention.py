"""Parse how long finished jobs are kept: ages such as "30 days" and counts, per state, queue and task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from djqueue.jobs.durations import parse_duration
from djqueue.jobs.records import PruneRule
from djqueue.jobs.states import FINAL_STATES, JobState

MOST_JOBS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Keep:
    """How many finished jobs in one state are kept, and for how long. Both None: all of them, forever."""

    age: timedelta | None = None
    count: int | None = None


Retention = Mapping[JobState, Keep]

DEFAULT_RETENTION: Retention = {
    JobState.COMPLETED: Keep(timedelta(days=1)),
    JobState.DISCARDED: Keep(timedelta(days=30)),
    JobState.CANCELLED: Keep(timedelta(days=7)),
}


def parse_retention(where: str, value: object) -> tuple[dict[JobState, Keep], list[str]]:
    """Parse the option ``retention``; return the valid rules, and a sentence about each invalid one."""
    if not isinstance(value, Mapping):
        value = dict.fromkeys(sorted(FINAL_STATES), value)  # one rule for all states
    rules: dict[JobState, Keep] = {}
    problems: list[str] = []
    for state, keep in value.items():
        if state not in FINAL_STATES:
            problems.append(f"Invalid state {state!r} in {where}: use {', '.join(sorted(FINAL_STATES))}.")
            continue
        try:
            rules[JobState(state)] = _keep(keep)
        except ValueError as error:
            problems.append(f"{where}[{str(state)!r}]: {error}")
    return rules, problems


def prune_rules(general: Retention, queues: Mapping[str, Retention], tasks: Mapping[str, Retention]) -> list[PruneRule]:
    """Return the rules for the engine. Queues and tasks override only the states that they name."""
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
        raise ValueError(f"Invalid keys {', '.join(sorted(map(repr, unknown)))}: use 'age', 'count' or both.")
    count = value.get("count")
    if count is not None and (type(count) is not int or not 0 <= count <= MOST_JOBS):
        raise ValueError(f"Invalid 'count' {count!r}: use a number of jobs from 0 to {MOST_JOBS}.")
    age = value.get("age")
    return Keep(None if age is None else parse_duration(age), count)
