"""Format an exception with its traceback as Python does, but cheaply enough for many failures in a short time.

To print a frame Python reads the source file, walks the positions of all its instructions and parses the line, to know
what to underline: 50 to 100 microseconds, more than a short job takes. But the same instruction of the same code
always has the same text, and failing jobs usually fail in the same few places. So Python formats each place once, and the
text is cached.
"""

from __future__ import annotations

from traceback import StackSummary, TracebackException, format_tb
from types import CodeType, TracebackType
from typing import Any

from djqueue.hooks import name_of_class

_KEPT_PLACES = 5000

_places: dict[tuple[int, int, int], tuple[CodeType, str]] = {}
"""The text of a frame by its code, instruction and line. The code is referenced so that its id cannot be
reused. The key is its id because functions of two files can have equal code."""


_HINTED = (SyntaxError, ImportError, NameError, AttributeError, BaseExceptionGroup)
"""Exceptions for which Python prints more than a name and a message."""


def format_error(error: BaseException) -> str:
    """Return the text that Python would print, including causes, notes, groups and hints. Never fails."""
    try:
        if _is_plain(error):
            # The usual case, which does not need the traceback module.
            lines = _frames(error.__traceback__)
            return "".join([*(["Traceback (most recent call last):\n"] if lines else []), *lines, _last_line(error)])
        # Everything except the frames: with a limit of 0 Python does not read them.
        printed = TracebackException(type(error), error, error.__traceback__, limit=0, compact=True)
        _add_frames(printed, error)
        return "".join(printed.format())
    except BaseException as failure:  # the project's __str__, __cause__ or source lines may fail
        return f"{name_of_class(error)}: the traceback cannot be shown ({name_of_class(failure)})"


def _is_plain(error: BaseException) -> bool:
    return (
        error.__cause__ is None
        and (error.__context__ is None or error.__suppress_context__)
        and not isinstance(error, _HINTED)
        and not hasattr(error, "__notes__")
    )


def _last_line(error: BaseException) -> str:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = str.__str__(str(error))
    except BaseException:
        message = "<exception str() failed>"
    return f"{name}: {message}\n" if message else f"{name}\n"


class _Frames(StackSummary):
    """Frames that are already formatted."""

    def format(self, **options: Any) -> list[str]:
        return list(map(str, self))


def _add_frames(printed: TracebackException, error: BaseException) -> None:
    todo: list[tuple[TracebackException, BaseException]] = [(printed, error)]
    while todo:  # a loop, because a chain may be too long for recursion
        printed, error = todo.pop()
        printed.stack = _Frames(_frames(error.__traceback__))
        if printed.__cause__ is not None and error.__cause__ is not None:
            todo.append((printed.__cause__, error.__cause__))
        if printed.__context__ is not None and error.__context__ is not None:
            todo.append((printed.__context__, error.__context__))
        if printed.exceptions and isinstance(error, BaseExceptionGroup):
            todo.extend(zip(printed.exceptions, error.exceptions, strict=True))


def _frames(traceback: TracebackType | None) -> list[Any]:
    """Return the text of each frame. A repeated frame is shown three times and then counted, as Python does."""
    frames: list[str] = []
    last = ("", 0, "")
    repeats = 0
    while traceback is not None:
        code = traceback.tb_frame.f_code
        place = (code.co_filename, traceback.tb_lineno, code.co_name)
        if place != last:
            _close(frames, repeats)
            last, repeats = place, 0
        repeats += 1
        if repeats <= 3:
            frames.append(_frame(traceback, code))
        traceback = traceback.tb_next
    _close(frames, repeats)
    return frames


def _close(frames: list[str], repeats: int) -> None:
    if repeats > 3:
        frames.append(f"  [Previous line repeated {repeats - 3} more time{'s' if repeats > 4 else ''}]\n")


def _frame(traceback: TracebackType, code: CodeType) -> str:
    key = (id(code), traceback.tb_lasti, traceback.tb_lineno)
    if (known := _places.get(key)) is None:
        if len(_places) >= _KEPT_PLACES:  # code that is compiled anew each time, by templates for example
            _places.clear()
        known = _places[key] = (code, "".join(format_tb(traceback, limit=1)))
    return known[1]
