"""Configure a worker's log where LOGGING does not, and make its standard streams tolerate closed pipes, full disks and readers
that stop reading.
"""

from __future__ import annotations

import io
import logging
import os
import select
import stat
import sys
import time
from typing import Any

_LEVELS = {0: logging.WARNING, 1: logging.INFO}

PATIENCE_SECONDS = 10.0
"""How long a write waits for the reader of a pipe. Every thread that logs waits behind it."""
_UNTRUSTED_SECONDS = 60.0
"""How long writes do not wait at all after a reader has exhausted the patience."""


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


def never_wait_for_readers() -> None:
    """Prevent the standard streams of this process from stopping its work: closed, full, or with a reader that does not read.

    A pipe whose reader stands still (a log collector that hangs) is full after 64 KB. The next write would wait forever, with
    the lock of the log handler, and so would every thread of a worker and its supervisor. Lines that would have to wait longer
    than ``PATIENCE_SECONDS`` are dropped, and their number is written when the reader reads again.
    """
    before = sys.stdout, sys.stderr
    sys.stdout = _tolerant(sys.stdout, _Impatient)
    sys.stderr = _tolerant(sys.stderr, _Impatient)
    replaced = {id(old): new for old, new in zip(before, (sys.stdout, sys.stderr), strict=True) if old is not None}
    logger: logging.Logger | None = logging.getLogger("djqueue")
    while logger is not None:  # LOGGING is configured before this module is loaded
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and id(handler.stream) in replaced:
                handler.setStream(replaced[id(handler.stream)])
        logger = logger.parent


def tolerate_closed_streams() -> None:
    """Prevent a command from failing because it prints to a pipe without a reader, or to a full disk."""
    sys.stdout = _tolerant(sys.stdout, _Tolerant)
    sys.stderr = _tolerant(sys.stderr, _Tolerant)


def write_failure(stream: Any) -> OSError | None:
    """Flush a tolerated stream and return why its data was dropped; None if it was not, or if its reader has left."""
    raw = getattr(stream, "buffer", None)
    raw = getattr(raw, "raw", raw)
    if not isinstance(raw, _Tolerant):
        return None
    stream.flush()
    return raw.failure


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


class _Impatient(_Tolerant):
    """A tolerant file that does not wait for long for the reader of a pipe or socket."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        mode = os.fstat(self.fileno()).st_mode
        self._has_reader = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        self._room = select.poll()
        self._room.register(self, select.POLLOUT)
        self._dropped_bytes = 0
        self._dropped_at = -_UNTRUSTED_SECONDS

    def write(self, data: Any, /) -> int:
        if not self._has_reader:
            return super().write(data)
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        while rest:
            if not self._is_ready():
                self._dropped_bytes += rest.nbytes
                break
            if self._dropped_bytes:
                note = f"\n[djqueue: {self._dropped_bytes} bytes of output were dropped, because their reader did not read.]\n"
                self._dropped_bytes = 0
                super().write(note.encode())
                continue
            # No more than a pipe that is ready takes at once; a larger write would wait for room.
            rest = rest[super().write(rest[: select.PIPE_BUF]) :]
        return size

    def _is_ready(self) -> bool:
        now = time.monotonic()
        patience = PATIENCE_SECONDS if now - self._dropped_at > _UNTRUSTED_SECONDS else 0.0
        try:
            is_ready = bool(self._room.poll(patience * 1000))
        except RuntimeError:  # another thread waits with the same object
            is_ready = bool(select.select([], [self], [], patience)[1])
        if not is_ready:
            self._dropped_at = time.monotonic()
        return is_ready


def _tolerant(stream: Any, kind: type[_Tolerant]) -> Any:
    if stream is None:  # closed from the start
        return open(os.devnull, "w", encoding="utf-8")
    try:
        raw = kind(stream.fileno(), "w", closefd=False)
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
