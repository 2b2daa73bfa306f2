"""Write the bad lines of a file to another file, which can be corrected and used as the input of a second run."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from djqueue.bulk.reader import BadLine
from djqueue.exceptions import DjqueueError


class InvalidRejects(DjqueueError):
    """The bad lines cannot be written to this file. The message says what to do."""


class Rejects:
    """Reports the first bad lines as they are found, and writes all of them to a file, if one is given.

    Raises ``InvalidRejects``, and changes nothing, if the file is the input or is not empty.
    """

    def __init__(self, path: str | None, source: str, tell: Callable[[str], Any], max_told: int) -> None:
        self._path = path
        self._tell = tell
        self._max_told = max_told
        self._count = 0
        self._has_header = False
        self._is_made = False
        self.is_finished = False
        self._file = self._open(path, source) if path else None

    def __enter__(self) -> Rejects:
        return self

    def __exit__(self, *error: object) -> None:
        if (
            self._file is not None
        ):  # The input was not read to its end: an incomplete file is useless and would block the next run.
            with suppress(OSError):
                self._file.close()
            if self._is_made and self._path:
                with suppress(OSError):
                    os.unlink(self._path)
        if self._count > self._max_told:
            self._tell(f"… and {self._count - self._max_told:,} more.")

    def __call__(self, line: BadLine) -> None:
        """Record a bad line. A line that was too long to be read has no text and is only reported."""
        self._count += 1
        if self._count <= self._max_told:
            self._tell(str(line))
        if self._file is not None and line.text:
            if line.header and not self._has_header:
                self._has_header = True
                self._write(line.header)
            self._write(line.text)

    def finish(self) -> None:
        """Flush the lines to disk. Called before the jobs are committed, so that no job is stored if this fails."""
        self.is_finished = True
        if self._file is None:
            return
        try:
            self._file.flush()
            if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise InvalidRejects(f"{self._path} cannot be written: {error}") from error
        self._file = None

    def _write(self, text: str) -> None:
        assert self._file is not None
        try:
            self._file.write(text if text.endswith("\n") else f"{text}\n")
        except OSError as error:
            raise InvalidRejects(f"{self._path} cannot be written: {error}") from error

    def _open(self, path: str, source: str) -> IO[str]:
        try:
            known: os.stat_result | None = os.stat(path)
        except FileNotFoundError:
            known = None
        mode = "x"
        if known is not None:
            # Devices are allowed: /dev/null may be both the input and the rejects file.
            if _is_same(known, source) and not stat.S_ISCHR(known.st_mode):
                raise InvalidRejects(f"{path} is the input file. Use another name for --rejects.")
            if stat.S_ISREG(known.st_mode) and known.st_size:
                raise InvalidRejects(
                    f"{path} already exists and is not empty. Use another name for --rejects, or remove the file."
                )
            mode = "r+" if stat.S_ISREG(known.st_mode) else "w"
        # No newline translation: the line ends of CSV rows, and those in fields, are kept.
        file = open(path, mode, encoding="utf-8", errors="surrogateescape", newline="")  # noqa: SIM115  finish closes it
        self._is_made = mode == "x"
        return file


def _is_same(known: os.stat_result, source: str) -> bool:
    """Return whether a file is the input file, even under another name."""
    try:
        return os.path.samestat(known, os.fstat(sys.stdin.fileno()) if source == "-" else os.stat(source))
    except (
        OSError,
        ValueError,
        AttributeError,
    ):  # The file cannot be read, which the reader reports; sys.stdin may be None.
        return False
