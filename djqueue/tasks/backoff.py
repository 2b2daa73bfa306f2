"""Compute how long to wait before the next attempt, without a clock and without I/O.

A task's ``backoff`` can be::

    None                          the default: Exponential()
    30 · timedelta(seconds=30)    always this long
    [5, 60, 3600]                 the first, second, … wait; the last one repeats
    Linear(10)                    10, 20, 30, … seconds
    Exponential()                 15 + 2 ** attempt seconds: 17, 19, 23, 31, 47, 79 … at most a day
    callable(attempt, exception)  any of the above for this attempt, seconds as a rule

``attempt`` is the attempt that just failed, from 1. With the default, a job with 20 attempts is
discarded after four and a half days, and is attempted ten times in the first half hour.

The result is always a number of seconds from 0 to 365 days. If a callable raises or returns another value, the failure
is logged and the default is used, so that a mistake in a backoff does not lose the job.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeGuard

from djqueue import hooks

DAY = 86_400.0
LIMIT = 365 * DAY
"""The longest wait. Later times would overflow a timestamp, and a wait of a year is already a mistake."""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require_seconds(name: str, value: object) -> None:
    if not _is_number(value) or not 0 <= value <= LIMIT:
        raise ValueError(f"Invalid {name} {value!r}: use a number of seconds from 0 to {LIMIT:g}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growing:
    maximum: float = DAY
    """The longest wait, in seconds."""
    jitter: float = 0.1
    """The random part of a wait, from 0 to 1, so that jobs which failed together are not retried together.

    It makes waits shorter, never longer."""

    def __post_init__(self) -> None:
        if not _is_number(self.maximum) or not 0 <= self.maximum <= LIMIT:
            raise ValueError(f"Invalid maximum {self.maximum!r}: use a number of seconds from 0 to {LIMIT:g}.")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ValueError(f"Invalid jitter {self.jitter!r}: use a number from 0 to 1.")

    def _spread(self, seconds: float) -> float:
        return min(seconds, self.maximum) * (1 - self.jitter * random.random())  # noqa: S311  jitter, no secret


@dataclass(frozen=True, slots=True)
class Linear(_Growing):
    """``step`` seconds after the first failed attempt, twice as long after the second, and so on."""

    step: float = 15.0

    def __post_init__(self) -> None:
        # slots=True creates a new class, in which zero-argument super() fails.
        _Growing.__post_init__(self)
        _require_seconds("step", self.step)

    def __call__(self, attempt: int, exception: BaseException | None = None) -> float:
        return self._spread(self.step * max(1, attempt))


@dataclass(frozen=True, slots=True)
class Exponential(_Growing):
    """``base + factor ** attempt`` seconds, at most ``maximum``."""

    base: float = 15.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        _Growing.__post_init__(self)
        _require_seconds("base", self.base)
        if not _is_number(self.factor) or not 1 <= self.factor <= 1000:
            raise ValueError(f"Invalid factor {self.factor!r}: use a number from 1 to 1000.")

    def __call__(self, attempt: int, exception: BaseException | None = None) -> float:
        try:
            grown = float(self.factor) ** max(1, attempt)
        except OverflowError:
            grown = math.inf
        return self._spread(self.base + grown)


DEFAULT = Exponential()

Seconds = float | timedelta
Backoff = Seconds | Sequence[Seconds] | Callable[[int, BaseException], Any] | None


def delay_seconds(backoff: Backoff, attempt: int, exception: BaseException | None = None) -> float:
    """Return how many seconds to wait after this failed attempt: from 0 to 365 days, always."""
    seconds: float | None = None
    try:
        chosen: Any = backoff
        if callable(backoff):
            chosen = backoff(attempt, exception)  # type: ignore[arg-type]  # None only if no exception was raised
        if chosen is not None and (seconds := _seconds(chosen, attempt)) is None:
            raise ValueError(f"Invalid return value {chosen!r}: use a number of seconds.")
    except BaseException as error:
        hooks.report(error, "The backoff %r failed for attempt %s. Falling back to the default.", backoff, attempt)
    return min(max(0.0, DEFAULT(attempt) if seconds is None else seconds), LIMIT)


def problem_of(backoff: object) -> str:
    """Return what is wrong with a ``backoff``, or an empty string."""
    if backoff is None or callable(backoff):
        return ""
    waits = list(backoff) if isinstance(backoff, list | tuple) else [backoff]
    if not waits:
        return "Invalid backoff []: use at least one wait in seconds."
    for wait in waits:
        seconds = _seconds(wait, 1) if not isinstance(wait, list | tuple) else None
        if seconds is None:
            return (
                f"Invalid backoff {backoff!r}: use seconds, a timedelta, a list of these, djqueue.Linear,"
                " djqueue.Exponential, or a function of attempt and exception."
            )
        if not 0 <= seconds <= LIMIT:
            return f"Invalid wait {wait!r} in backoff: use 0 seconds to 365 days."
    return ""


def _seconds(wait: Any, attempt: int) -> float | None:
    """Convert a wait to seconds, or return None if it is not a wait."""
    if isinstance(wait, list | tuple) and wait:
        wait = wait[min(max(1, attempt), len(wait)) - 1]
    if isinstance(wait, timedelta):
        return wait.total_seconds()
    if _is_number(wait) and wait == wait:  # NaN is not equal to itself
        return float(min(max(wait, -LIMIT), LIMIT * 2))
    return None
