"""What a worker says: its log without any LOGGING setting, and standard streams that fail nobody."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Any

_LEVELS = {0: logging.WARNING, 1: logging.INFO}


def configure(verbosity: int) -> None:
    """Show the ``djqueue`` logger on standard error: warnings (0), every outcome (1), every start too (2, 3).

    Where LOGGING, or whatever else configured logging, has a handler for it, its level is left alone as well.

    ``django.tasks`` says the same once more in other words; unless the project gave it a level, only its warnings
    are let through.
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
    """Let no job fail because it prints to a pipe that nobody reads any more, or to a disk that is full."""
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
    """A file that takes everything, and drops what it cannot pass on."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.failure = error
            written = None
        return memoryview(data).nbytes if written is None else written
