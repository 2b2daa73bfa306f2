"""Durations as arguments of commands."""

from __future__ import annotations

import argparse
from datetime import timedelta

from djqueue.jobs.durations import parse_duration


def duration(text: str) -> timedelta:
    """Read a duration for argparse, which shows the sentence of an ``ArgumentTypeError``."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
