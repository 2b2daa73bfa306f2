"""One grammar for durations: in settings, in ``@task``, ``Unique`` and ``Cron``, and on the command line.

A timedelta, a number of seconds, words ("90s", "2 days", "1 day 12 hours"), an ISO 8601 duration ("PT90M") or a clock ("01:30:00").
A text without a unit is refused, except "0": "2" could mean seconds or days, and commands delete jobs by age.
"""

from __future__ import annotations

import re
from datetime import timedelta

LONGEST = timedelta(days=36_525)

Duration = timedelta | float | str
"""What a parameter that takes a duration accepts."""

_UNITS = {
    "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600,
    "d": 86_400, "day": 86_400, "w": 604_800, "week": 604_800, "year": 31_557_600,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?:\s+|$)", re.ASCII)
_ISO = re.compile(
    r"p(?:(?P<w>\d+(?:\.\d+)?)w)?(?:(?P<d>\d+(?:\.\d+)?)d)?"
    r"(?:t(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?)?",
    re.ASCII,
)
_CLOCK = re.compile(r"(\d+):([0-5]?\d):([0-5]?\d(?:\.\d+)?)", re.ASCII)


def parse_duration(value: object) -> timedelta:
    """Parse a duration from 0 to 100 years; raise ``ValueError`` with a message for users."""
    seconds: float | None = None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    elif isinstance(value, str) and len(value) <= 100:
        text = value.strip().lower()
        seconds = 0 if text == "0" else _clock_seconds(text) or _iso_seconds(text) or _seconds(text)
    # The comparison is False for NaN too.
    if seconds is None or not 0 <= seconds <= LONGEST.total_seconds():
        is_bare = isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*", value, re.ASCII)
        hint = f' Add a unit: "{value.strip()} seconds" or "{value.strip()} days".' if is_bare else ""  # type: ignore[attr-defined]
        raise ValueError(
            f"Invalid duration {value!r:.120}: use a timedelta, a number of seconds, or a text like"
            f' "90s", "2 days", "1 day 12 hours" or "PT90M", from 0 to 100 years.{hint}'
        )
    return value if isinstance(value, timedelta) else timedelta(seconds=seconds)


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


def _iso_seconds(text: str) -> float | None:
    match = _ISO.fullmatch(text)
    if match is None or not any(match.groups()) or text.endswith("t"):
        return None
    return sum(float(number) * _UNITS[unit] for unit, number in match.groupdict().items() if number)


def _clock_seconds(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    return None if match is None else int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])
