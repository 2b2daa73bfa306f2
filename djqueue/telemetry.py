"""Events: one structured log line each, and a hook for whoever wants them.

An event has a name (``djqueue.job.stop``), a level and plain fields. It is written to the ``djqueue`` logger
as ``job.stop job=7 task=shop.tasks.mail …`` with the fields as ``record.djqueue``, and handed to attached
handlers.
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
    """Call ``handler(event, fields)`` for every event from now on; return what detaches it again."""
    _handlers.append(handler)

    def detach() -> None:
        if handler in _handlers:
            _handlers.remove(handler)

    return detach


def is_heard(level: int) -> bool:
    """Whether an event of this level reaches anybody: the hot path asks before it gathers fields."""
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
    """Log the event and call the handlers. Neither can fail the caller.

    ``exc_text``: the text of ``exc_info``, from one who has it already; printing it once more costs more than a short job.
    """
    try:
        if logger.isEnabledFor(level):
            _log(event, level, fields, exc_info, exc_text)
    except BaseException as error:  # a log handler or filter of the project
        if hooks.must_pass(error):
            raise
        hooks.report(error, "The event %s could not be logged.", event)
    for handler in tuple(_handlers):
        try:
            handler(event, fields)
        except BaseException as error:
            if hooks.must_pass(error):
                raise
            hooks.report(error, "A telemetry handler failed on %s.", event)


def _log(
    event: str, level: int, fields: Mapping[str, Any], exc_info: BaseException | None, exc_text: str | None
) -> None:
    words = " ".join([f"{key}={_word(value)}" for key, value in fields.items()])
    # What logger.log does, but for the text: formatters look for it before they make one of their own.
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
    # Names come out of the database: no line break or control character may forge a log line.
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if text.isprintable() and " " not in text and text else repr(text)
