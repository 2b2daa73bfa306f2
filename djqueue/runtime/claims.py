"""The claim block: the claims of a worker process, in memory that its supervisor can read after the process has died.

Layout: ``beat`` (float64, monotonic time of the last good beat, written by the supervisor), ``peak`` (int64, the
number of entries ever used, so that the rest need not be read), ``end`` (int64, how the worker left: 0 until it has left
in order), ``pulse`` (float64, monotonic time at which the worker's main thread last ran), then one entry per claim:
flag (uint8: 0 free, 1 claimed, 2 begun), job id (int64), claim (int64), deadline (float64, monotonic; 0: none). Each
field has one writer at a time. The supervisor reads the entries when the worker is dead, and the deadlines while it lives: no other
process can end a task that holds the interpreter.

The block, not the exit code, decides how a worker ended: a task can end the process with any exit code.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

CAPACITY = 16_384
_ENTRY = struct.Struct("=Bqqd")
_DEADLINE = struct.Struct("=d")
_DEADLINE_OFFSET = 17
_BEAT = struct.Struct("=d")
_PEAK = struct.Struct("=q")
_END = struct.Struct("=q")
_END_OFFSET = _BEAT.size + _PEAK.size
_PULSE = struct.Struct("=d")
_PULSE_OFFSET = _END_OFFSET + _END.size
_HEAD = _PULSE_OFFSET + _PULSE.size
_SIZE = _HEAD + CAPACITY * _ENTRY.size
_FREE, _CLAIMED, _BEGUN = 0, 1, 2


class ClaimBlock:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, _SIZE)
        self._free = list(range(CAPACITY - 1, -1, -1))
        self._peak = 0

    @classmethod
    def create(cls) -> Self:
        """Create a block in anonymous memory; pass ``fd`` to the child and map it there.

        Raises ``OSError`` if there is no memory for it: a write into a sparse block could kill the process later.
        """
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("djqueue-claims")
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, _SIZE)
            else:
                os.pwrite(fd, bytes(_SIZE), 0)
            os.set_inheritable(fd, True)
            return cls(fd)
        except (OSError, ValueError):
            os.close(fd)
            raise

    # The worker's side.

    def hold(self, job_id: int, claim: int) -> int:
        """Record a claim; return its slot."""
        slot = self._free.pop()
        if slot >= self._peak:
            self._peak = slot + 1
            _PEAK.pack_into(self._memory, _BEAT.size, self._peak)
        _ENTRY.pack_into(self._memory, _HEAD + slot * _ENTRY.size, _CLAIMED, job_id, claim, 0.0)
        return slot

    def begin(self, slot: int, deadline: float | None) -> None:
        """Record that the function of this claim is being called, and its deadline."""
        offset = _HEAD + slot * _ENTRY.size
        if deadline is not None:
            _DEADLINE.pack_into(self._memory, offset + _DEADLINE_OFFSET, deadline)
        self._memory[offset] = _BEGUN

    def release(self, slot: int) -> None:
        """Forget a claim whose outcome is stored."""
        self._memory[_HEAD + slot * _ENTRY.size] = _FREE
        self._free.append(slot)

    def leave(self, end: int) -> None:
        """Record that the worker left in order, and how (not 0). The last write of a worker."""
        _END.pack_into(self._memory, _END_OFFSET, end)

    def record_pulse(self) -> None:
        """Record that the main thread runs. A process that is stopped, or whose interpreter is held by one call, does not get here."""
        _PULSE.pack_into(self._memory, _PULSE_OFFSET, time.monotonic())

    @property
    def held(self) -> int:
        return CAPACITY - len(self._free)

    @property
    def room(self) -> int:
        return len(self._free)

    def claims(self) -> dict[int, int]:
        """Return job id → claim of every held claim; for the producer's thread, and for the supervisor after the end."""
        return {job_id: claim for flag, job_id, claim, _ in self._entries() if flag != _FREE}

    def seconds_since_beat(self) -> float:
        """Return the seconds since the supervisor last sent a heartbeat for this worker."""
        return time.monotonic() - float(_BEAT.unpack_from(self._memory, 0)[0])

    # The supervisor's side.

    def record_beat(self, at: float | None = None) -> None:
        """Record a successful heartbeat with the time at which it was sent, not answered."""
        with suppress(ValueError, TypeError):  # closed meanwhile: the worker has just ended
            _BEAT.pack_into(self._memory, 0, time.monotonic() if at is None else at)

    def seconds_since_pulse(self) -> float:
        """Return the seconds since the worker's main thread last ran."""
        return time.monotonic() - float(_PULSE.unpack_from(self._memory, _PULSE_OFFSET)[0])

    @property
    def end(self) -> int:
        """How the worker left; 0 if it did not leave in order, or left with a claim."""
        [end] = _END.unpack_from(self._memory, _END_OFFSET)
        return 0 if self.claims() else int(end)

    def begun(self) -> dict[int, int]:
        """Return job id → claim of each job that has started and has no outcome that the worker knows to be stored."""
        return {job_id: claim for flag, job_id, claim, _ in self._entries() if flag == _BEGUN}

    def overdue(self, grace_seconds: float) -> dict[int, int]:
        """Return job id → claim of each job whose deadline passed this long ago."""
        limit = time.monotonic() - grace_seconds
        return {
            job_id: claim
            for flag, job_id, claim, deadline in self._entries()
            if flag == _BEGUN and 0 < deadline < limit
        }

    def _entries(self) -> Iterator[tuple[int, int, int, float]]:
        [peak] = _PEAK.unpack_from(self._memory, _BEAT.size)
        return _ENTRY.iter_unpack(self._memory[_HEAD : _HEAD + peak * _ENTRY.size])

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)
