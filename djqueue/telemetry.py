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
            _log(event, level, fields, exc_info, exc_text)
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


def _log(
    event: str, level: int, fields: Mapping[str, Any], exc_info: BaseException | None, exc_text: str | None
) -> None:
    words = " ".join([f"{key}={_word(value)}" for key, value in fields.items()])
    # As logger.log does, with exc_text in addition: formatters use it instead of formatting the traceback themselves.
    record = logger.makeRecord(
        logger.name,
        level,
        __file__,
        0,
        "%s %s",
        (event.removeprefix("djqueue."), words),
        None if exc_info is None else (type(exc_info), exc_info, exc_info.__traceback__),
        "emit",
        {"djqueue": fields},
    )
    record.exc_text = exc_text
    logger.handle(record)


def _word(value: object) -> str:
    # Names come from the database: no line break or control character may forge a log line.
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if text.isprintable() and " " not in text and text else repr(text)
