"""The claim block: what a worker process holds, in memory that its supervisor can read after its death.

Layout: ``beat`` (float64, monotonic time of the last good beat, written by the supervisor), then one entry per claim:
flag (uint8: 0 free, 1 claimed, 2 begun), job id (int64), claim (int64). Each field has one writer at a time, and the
supervisor reads the entries only when the worker is dead.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from typing import Self

CAPACITY = 16_384
_ENTRY = struct.Struct("=Bqq")
_BEAT = struct.Struct("=d")
_SIZE = _BEAT.size + CAPACITY * _ENTRY.size
_FREE, _CLAIMED, _BEGUN = 0, 1, 2


class ClaimBlock:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, _SIZE)
        self._free = list(range(CAPACITY - 1, -1, -1))

    @classmethod
    def create(cls) -> Self:
        """Make a block in an unlinked temporary file; pass ``fd`` on to the child and map it there."""
        with tempfile.TemporaryFile() as file:
            file.truncate(_SIZE)
            fd = os.dup(file.fileno())
        os.set_inheritable(fd, True)
        return cls(fd)

    # The worker's side.

    def hold(self, job_id: int, claim: int) -> int:
        """Note a claim; return its place."""
        place = self._free.pop()
        _ENTRY.pack_into(self._memory, _BEAT.size + place * _ENTRY.size, _CLAIMED, job_id, claim)
        return place

    def begin(self, place: int) -> None:
        """Note that the function of this claim is being called."""
        self._memory[_BEAT.size + place * _ENTRY.size] = _BEGUN

    def release(self, place: int) -> None:
        """Forget a claim whose outcome is stored."""
        self._memory[_BEAT.size + place * _ENTRY.size] = _FREE
        self._free.append(place)

    @property
    def held(self) -> int:
        return CAPACITY - len(self._free)

    @property
    def room(self) -> int:
        return len(self._free)

    def seconds_since_beat(self) -> float:
        """How long ago the supervisor last told the store that this worker lives."""
        return time.monotonic() - float(_BEAT.unpack_from(self._memory, 0)[0])

    # The supervisor's side.

    def record_beat(self) -> None:
        _BEAT.pack_into(self._memory, 0, time.monotonic())

    def begun(self) -> dict[int, int]:
        """Return job id → claim of what began and has no stored outcome that the worker knew of."""
        entries = _ENTRY.iter_unpack(self._memory[_BEAT.size :])
        return {job_id: claim for flag, job_id, claim in entries if flag == _BEGUN}

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)
