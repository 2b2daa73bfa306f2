"""End processes that tasks started and that outlived their worker.

They carry the worker's id in their environment, which a fork and a program inherit alike, and so are found even if
their parent has ended. A process that is to outlive its worker needs a session of its own (``start_new_session=True``), as
any daemon does. Without /proc nothing is found, and such processes continue, as children of any Python process do.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from uuid import UUID

VARIABLE = "DJQUEUE_WORKER"
"""Environment variable with the id of the worker."""
TERMINATE_SECONDS = 5.0
"""Time between SIGTERM and SIGKILL."""


class Leftovers:
    """The processes left by workers that have ended."""

    def __init__(self) -> None:
        self._kill_after: dict[UUID, float] = {}

    def __bool__(self) -> bool:
        return bool(self._kill_after)

    def terminate(self, worker: UUID) -> None:
        """Send SIGTERM to every process that this worker has left."""
        if _send(worker, signal.SIGTERM):
            self._kill_after[worker] = time.monotonic() + TERMINATE_SECONDS

    def kill(self, *, at_once: bool = False) -> None:
        """Kill the processes that did not end in time, and forget those that have ended."""
        for worker, kill_after in list(self._kill_after.items()):
            is_due = at_once or time.monotonic() > kill_after
            if not _send(worker, signal.SIGKILL if is_due else None) or is_due:
                del self._kill_after[worker]


def _send(worker: UUID, number: signal.Signals | None) -> int:
    """Send a signal, if one is given, to each process of a worker; return their number."""
    found = 0
    mark = f"{VARIABLE}={worker}".encode()
    session = os.getsid(0)
    with suppress(OSError):
        for name in os.listdir("/proc"):
            # Processes may end meanwhile, and those of other users cannot be read.
            with suppress(OSError):
                if name.isdecimal() and int(name) != os.getpid() and _is_marked(int(name), mark, session):
                    found += 1
                    if number is not None:
                        os.kill(int(name), number)
    return found


def _is_marked(pid: int, mark: bytes, session: int) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return mark in file.read().split(b"\0") and os.getsid(pid) == session
