"""Events: one structured log line each, and handlers that projects can attach.

An event has a name (``djqueue.job.stop``), a level and plain fields. It is written to the ``djqueue`` logger
as ``job.stop job=7 task=shop.tasks.mail …`` with the fields as ``record.djqueue``, and passed to the attached
handlers. README lists all events with their fields.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from djqueue import hooks

logger = logging.getLogger("djqueue")

MAX_WORD_CHARS = 2_000
"""Maximum length of a field in a log line. A server's error can quote a value of any size."""

Handler = Callable[[str, Mapping[str, Any]], None]
_handlers: list[Handler] = []


def attach(handler: Handler) -> Callable[[], None]:
    """Call ``handler(event, fields)`` for every event from now on; return a function that detaches the handler."""
    _handlers.append(handler)

    def detach() -> None:
        if handler in _handlers:
            _handlers.remove(handler)

    return detach


def is_heard(level: int) -> bool:
    """Return whether an event of this level is logged or handled: the hot path asks before it collects fields."""
    return bool(_handlers) or logger.isEnabledFor(level)


def emit(
    event: str,
    level: int = logging.INFO,
    /,
    *,
    exc_info: BaseException | None = None,
    exc_text: str | None = None,
    **fields: Any,
) -> None:
    """Log the event and call the handlers. Never raises what they raise, except exceptions meant for the process.

    ``exc_text``: the traceback of ``exc_info`` as text, if the caller has it already; to format it again costs more than a
    short job.
    """
    try:
        if logger.isEnabledFor(level):
            words = " ".join([f"{key}={_word(value)}" for key, value in fields.items()])
            args = (event.removeprefix("djqueue."), words)
            hooks.log(logger, level, "%s %s", args, exc_info, exc_text=exc_text, extra={"djqueue": fields})
    except BaseException as error:  # a log handler or filter of the project
        if hooks.must_pass(error):
            raise
        hooks.report(error, "Unexpected error while logging the event %s.", event)
    for handler in tuple(_handlers):
        try:
            handler(event, fields)
        except BaseException as error:
            if hooks.must_pass(error):
                raise
            hooks.report(error, "Unexpected error in a telemetry handler for the event %s.", event)


def _word(value: object) -> str:
    # Names come from the database: no line break or control character may forge a log line.
    text = f"{value:.3f}" if isinstance(value, float) else hooks.shorten(str(value), MAX_WORD_CHARS)
    return text if text.isprintable() and " " not in text and text else repr(text)
