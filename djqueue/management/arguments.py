"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import getpass
import math
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from djqueue.api import DEFAULT_ALIAS
from djqueue.jobs.durations import parse_duration
from djqueue.jobs.names import invalid_queue_name, is_queue_name


def add_backend(parser: argparse.ArgumentParser, verbs: Any = None) -> None:
    """Add ``--backend``; with ``verbs`` it may stand before the verb and after it."""
    for one, default in (
        (parser, DEFAULT_ALIAS),
        # Without a default: it would hide one that stood before.
        *((verb, argparse.SUPPRESS) for verb in (verbs.choices.values() if verbs else ())),
    ):
        one.add_argument("--backend", default=default, metavar="ALIAS", help="Which entry of TASKS. Default: default.")


def user_name(default: str) -> str:
    """Return the name of the user who runs the command; a container's user may have none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return default


# Types for argparse, which shows the message of an ``ArgumentTypeError`` and of no other exception.


def queue_name(text: str) -> str:
    if not is_queue_name(text):
        raise argparse.ArgumentTypeError(invalid_queue_name(text))
    return text


def task_path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("Invalid task '': use the path of a task, like shop.tasks.send.")
    return text


def duration(text: str) -> timedelta:
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


def seconds(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"Invalid number of seconds {text!r:.80}: use {least:g} to {most:.0f}.")
        return value

    return parse


def whole_number(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = 0
        if not 1 <= number <= most:
            raise argparse.ArgumentTypeError(f"Invalid number {text!r:.80}: use a whole number from 1 to {most}.")
        return number

    return parse
