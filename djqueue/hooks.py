"""Calls into a project's code outside of its tasks: backoffs, rules, context, signals, log handlers, texts of exceptions.

What a task raises becomes its job's outcome. What these raise must not get in the way of that outcome: every call has a
fallback, a failure is reported, and the work goes on.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger("djqueue.hooks")


def call(function: Callable[[], T], fallback: T, what: str, *args: object) -> T:
    """Return what the function returns; report an exception as ``what % args`` and return the fallback instead."""
    try:
        return function()
    except BaseException as error:
        report(error, what, *args)
        return fallback


def report(error: BaseException, what: str, *args: object) -> None:
    """Log a failure of a project's code. Never fails, not even where the log handlers are what fails."""
    try:
        logger.error(what, *args, exc_info=error)
    except BaseException:
        # The arguments and the exception may be what cannot be printed.
        with suppress(BaseException):
            sys.stderr.write(f"djqueue.hooks: {what} ({class_path(error)}; it could not be logged)\n")


def must_pass(error: BaseException) -> bool:
    """Say whether an exception may be meant for the process: in the main thread, Ctrl-C and what signal handlers raise."""
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


def class_path(error: BaseException) -> str:
    """Name the class of an exception. Never fails."""
    kind = type(error)
    try:
        return f"{kind.__module__}.{kind.__qualname__}"
    except BaseException:  # a metaclass with its own ideas
        return "builtins.BaseException"


def text_of(value: object) -> str:
    """Return ``str(value)``, a plain one: a subclass of str may break whatever is done with it next. Never fails."""
    try:
        return str.__str__(value if isinstance(value, str) else str(value))
    except BaseException as error:  # somebody else's __str__
        return f"<{name_of_class(value)}, which cannot be shown: {name_of_class(error)}>"


def name_of_class(value: object) -> str:
    """Name the class of a value without its module. Never fails."""
    try:
        return str.__str__(type(value).__name__)
    except BaseException:
        return "object"
