"""Configure a worker's log where LOGGING does not, and make its standard streams tolerate closed pipes and full disks."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Any

_LEVELS = {0: logging.WARNING, 1: logging.INFO}


def configure(verbosity: int) -> None:
    """Show the ``djqueue`` logger on standard error: warnings (0), every outcome (1), every start too (2, 3).

    If LOGGING, or other code, has configured a handler for it, neither the handlers nor the level are changed.

    ``django.tasks`` logs the same events in other words; unless the project has set its level, only its warnings are
    shown.
    """
    logger = logging.getLogger("djqueue")
    if not logger.hasHandlers():
        if logger.level == logging.NOTSET:
            logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
    for name in ("django.tasks", "django_tasks"):
        tasks = logging.getLogger(name)
        if tasks.level == logging.NOTSET:
            tasks.setLevel(logging.WARNING)


def tolerate_closed_streams() -> None:
    """Prevent a job from failing because it prints to a pipe without a reader, or to a full disk."""
    sys.stdout = _tolerant(sys.stdout)
    sys.stderr = _tolerant(sys.stderr)


def write_failure(stream: Any) -> OSError | None:
    """Flush a tolerated stream and return why its data was dropped; None if it was not, or if its reader has left."""
    raw = getattr(stream, "buffer", None)
    raw = getattr(raw, "raw", raw)
    if not isinstance(raw, _Tolerant):
        return None
    stream.flush()
    return raw.failure


def _tolerant(stream: Any) -> Any:
    if stream is None:  # closed from the start
        return open(os.devnull, "w", encoding="utf-8")
    try:
        raw = _Tolerant(stream.fileno(), "w", closefd=False)
    except (AttributeError, OSError):  # not a file
        return stream
    buffer = raw if stream.write_through else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Tolerant(io.FileIO):
    """A file that accepts every write, and drops what cannot be written."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.failure = error
            written = None
        return memoryview(data).nbytes if written is None else written
