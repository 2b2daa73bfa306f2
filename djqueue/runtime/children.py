"""Worker processes as their supervisor sees them: started, told what to do, and replaced."""

from __future__ import annotations

import math
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from djqueue.runtime import child
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.specs import SupervisorSpec

_LONGEST_RESPAWN_SECONDS = 30.0
_SPAWN_RETRY_SECONDS = 2.0
_STABLE_SECONDS = 10.0
"""A worker that has lived for so long resets the pauses before its successors."""


@dataclass(slots=True, kw_only=True, eq=False)
class Child:
    """One worker process."""

    id: UUID
    name: str
    process: subprocess.Popen[bytes]
    control: socket.socket
    claims: ClaimBlock
    started: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    is_announced: bool = False
    is_working: bool = False
    is_hung: bool = False
    """Its main thread has not run for long."""
    overdue: dict[int, int] = field(default_factory=dict)
    """Job id → claim of the overdue jobs for which the process was killed."""

    @property
    def lived_seconds(self) -> float:
        return time.monotonic() - self.started

    def send(self, command: bytes) -> None:
        with suppress(OSError):  # the process has ended, as waitpid will say
            self.control.send(command)

    def receive(self) -> bytes:
        """Return what the process has sent; nothing if it has ended."""
        try:
            return self.control.recv(1)
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.control.close()
        self.claims.close()


def spawn(spec: SupervisorSpec, name: str, settings: Mapping[str, str]) -> Child:
    """Start a worker process. Raises ``OSError`` when the machine has no process, memory or file descriptor left."""
    worker = uuid4()
    ours, theirs = socket.socketpair()
    claims = ClaimBlock.create()
    config = {
        "id": str(worker),
        "spec": spec.worker_json(name),
        "settings": settings,
        "control_fd": theirs.fileno(),
        "claims_fd": claims.fd,
    }
    try:
        process = subprocess.Popen(
            child.command(config, f"djqueue worker {name}"),
            pass_fds=[theirs.fileno(), claims.fd],
            stdin=subprocess.DEVNULL,
            env=child.environment(worker),
        )
    except OSError:
        ours.close()
        claims.close()
        raise
    finally:
        theirs.close()
    return Child(id=worker, name=name, process=process, control=ours, claims=claims)


class Successions:
    """When the next worker process may start at each position of a supervisor, numbered from 0."""

    def __init__(self, positions: int) -> None:
        self._start_after = [0.0] * positions
        """By the monotonic clock; infinity means never, because a drain is over there."""
        self._failures = [0] * positions
        self.failed_starts = 0
        """Workers in a row that ended by themselves before they were ready."""

    def is_due(self, position: int) -> bool:
        return time.monotonic() >= self._start_after[position]

    @property
    def all_finished(self) -> bool:
        return all(after == math.inf for after in self._start_after)

    def finish(self, position: int) -> None:
        """Start no other worker here: the drain is over."""
        self._start_after[position] = math.inf

    def resume_one(self) -> None:
        """Start one more worker at a finished position, if there is one."""
        if math.inf in self._start_after:
            self._start_after[self._start_after.index(math.inf)] = 0.0

    def retry_soon(self, position: int) -> None:
        """Wait before the next try to start a process, because this one could not be started."""
        self._start_after[position] = time.monotonic() + _SPAWN_RETRY_SECONDS

    def note_end_in_order(self, position: int) -> None:
        self._failures[position] = 0

    def note_loss(self, position: int, lost: Child, code: int, *, is_store_reachable: bool) -> None:
        """Plan the successor of a worker that did not end in order: the first starts at once, later ones after growing pauses."""
        if not lost.is_working and -code not in (signal.SIGKILL, signal.SIGTERM) and is_store_reachable:
            self.failed_starts += 1  # it ended by itself, and the next one most likely will too
        failures = self._failures[position] = (
            1 if lost.lived_seconds > _STABLE_SECONDS else self._failures[position] + 1
        )
        pause = 0.0 if failures == 1 else min(_LONGEST_RESPAWN_SECONDS, 2.0 ** (failures - 2))
        self._start_after[position] = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311  jitter

    def seconds_until_next(self) -> list[float]:
        """Return the seconds until each start that lies ahead."""
        now = time.monotonic()
        return [after - now for after in self._start_after if now < after < math.inf]
