"""A file that all processes map: how often each job began, when it first did, and when last."""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "DJQUEUE_BENCHMARK"
"""Names the file, and makes a process know the tasks of the benchmark."""
CAPACITY = 2_000_000
_ENTRY = struct.Struct("=Bdd")


class Record:
    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, CAPACITY * _ENTRY.size)
            self._memory = mmap.mmap(fd, CAPACITY * _ENTRY.size)
        finally:
            os.close(fd)

    def begin(self, index: int) -> int:
        """Note that a job begins; return for which time."""
        offset = index * _ENTRY.size
        now = time.time()
        count, first, _ = _ENTRY.unpack_from(self._memory, offset)
        count = min(count + 1, 255)
        _ENTRY.pack_into(self._memory, offset, count, first or now, now)
        return int(count)

    def clear(self, count: int) -> None:
        self._memory[: count * _ENTRY.size] = bytes(count * _ENTRY.size)

    def entries(self, count: int) -> list[tuple[int, float, float]]:
        """Return executions, the first and the last start of the first jobs."""
        return list(_ENTRY.iter_unpack(self._memory[: count * _ENTRY.size]))

    def executions(self, count: int) -> int:
        """How often the first jobs were begun, all together."""
        return sum(self._memory[: count * _ENTRY.size : _ENTRY.size])


_open: dict[str, Record] = {}


def current() -> Record:
    """Return the record of this process."""
    path = os.environ[VARIABLE]
    if path not in _open:
        _open[path] = Record(str(Path(path)))
    return _open[path]
