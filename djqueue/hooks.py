"""Call a project's code outside its tasks: backoffs, retry rules, context, signals, log handlers, texts of exceptions.

What a task raises becomes its job's outcome. What this code raises must not change that outcome: every call has a
fallback, a failure is logged, and the work continues.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from traceback import format_exception
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger("djqueue.hooks")

MAX_TRACEBACK_CHARS = 16_384
"""Maximum length of a traceback in the store and in a log line."""


def call(function: Callable[[], T], fallback: T, what: str, *args: object) -> T:
    """Return the function's result; if it raises, log the exception as ``what % args`` and return the fallback."""
    try:
        return function()
    except BaseException as error:
        report(error, what, *args)
        return fallback


def report(error: BaseException, what: str, *args: object) -> None:
    """Log a failure of a project's code. Never raises, not even if the log handlers fail."""
    try:
        log(logger, logging.ERROR, what, args, error)
    except BaseException:
        # The arguments or the exception may be impossible to format.
        with suppress(BaseException):
            sys.stderr.write(f"djqueue.hooks: {what} ({class_path(error)}; logging it failed)\n")


def log(
    logger: logging.Logger,
    level: int,
    message: str,
    args: tuple[object, ...],
    error: BaseException | None = None,
    *,
    exc_text: str | None = None,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Log as ``logger.log`` does, with a traceback of limited size: the text of an exception may be as large as its data.

    ``exc_text``: the traceback of ``error``, if the caller has it already, or the stack of a thread.
    """
    if not logger.isEnabledFor(level):
        return
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logger.makeRecord(logger.name, level, __file__, 0, message, args, exc_info, "log", extra)
    if exc_text is None and error is not None:
        exc_text = "".join(format_exception(error))
    if exc_text is not None:  # formatters use it instead of formatting the traceback themselves
        record.exc_text = shorten(exc_text.rstrip("\n"), MAX_TRACEBACK_CHARS)
    logger.handle(record)


def shorten(text: str, limit: int) -> str:
    """Leave out the middle of a text that is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    # The end of a traceback says what happened, its beginning says where the call came from.
    head = max(0, limit // 3 - 40)
    tail = max(0, limit - head - 80)
    left_out = len(text) - head - tail
    return f"{text[:head]}\n… {left_out} characters left out …\n{text[-tail:] if tail else ''}"[:limit]


def must_pass(error: BaseException) -> bool:
    """Return whether an exception may be meant for the process: Ctrl-C and exceptions of signal handlers, in the main thread."""
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


def class_path(error: BaseException) -> str:
    """Return the dotted path of an exception's class. Never raises."""
    kind = type(error)
    try:
        return f"{kind.__module__}.{kind.__qualname__}"
    except BaseException:  # a metaclass that raises
        return "builtins.BaseException"


def text_of(value: object) -> str:
    """Return ``str(value)`` as a plain ``str``: a subclass of ``str`` could break later operations. Never raises."""
    try:
        return str.__str__(value if isinstance(value, str) else str(value))
    except BaseException as error:  # a __str__ of the project
        return f"<{name_of_class(value)}: {name_of_class(error)} in __str__>"


def name_of_class(value: object) -> str:
    """Return the name of a value's class without its module. Never raises."""
    try:
        return str.__str__(type(value).__name__)
    except BaseException:
        return "object"
