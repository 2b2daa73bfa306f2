"""Durations as arguments of commands."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta

from djqueue.jobs.durations import parse_duration


def duration(text: str) -> timedelta:
    """Parse a duration for argparse, which shows the message of an ``ArgumentTypeError`` and of no other exception."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def duration_seconds(text: str) -> float:
    """Parse a duration of which a bare number means seconds: for options that delete nothing.

    An age by which jobs are deleted needs a unit, because a number of seconds that was meant as days deletes too much.
    """
    return duration(f"{text}s" if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) else text).total_seconds()


def whole_seconds(text: str) -> int:
    """Parse a duration as ``duration_seconds`` does and drop the fraction of a second."""
    return int(duration_seconds(text))
