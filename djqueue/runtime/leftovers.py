"""Processes that the tasks of a worker started and left behind.

They carry the worker's id in their environment, which a fork and a program inherit alike, and so are found even when
their parent is gone. One that is to outlive its worker gets a session of its own (``start_new_session=True``), as any
daemon does. Where there is no /proc nothing is found, and they live on, as children of any Python process do.
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
"""How long they may take to end after SIGTERM, before SIGKILL."""


class Leftovers:
    """What is left of workers that have ended."""

    def __init__(self) -> None:
        self._kill_after: dict[UUID, float] = {}

    def __bool__(self) -> bool:
        return bool(self._kill_after)

    def terminate(self, worker: UUID) -> None:
        """Ask all that this worker left behind to end."""
        if _send(worker, signal.SIGTERM):
            self._kill_after[worker] = time.monotonic() + TERMINATE_SECONDS

    def kill(self, *, at_once: bool = False) -> None:
        """Kill what did not end in time, and forget what has ended."""
        for worker, kill_after in list(self._kill_after.items()):
            is_due = at_once or time.monotonic() > kill_after
            if not _send(worker, signal.SIGKILL if is_due else None) or is_due:
                del self._kill_after[worker]


def _send(worker: UUID, number: signal.Signals | None) -> int:
    """Send a signal to each, or none; return how many there are."""
    found = 0
    mark = f"{VARIABLE}={worker}".encode()
    session = os.getsid(0)
    with suppress(OSError):
        for name in os.listdir("/proc"):
            # They end, and others begin, while we look; and those of other users are none of ours.
            with suppress(OSError):
                if name.isdecimal() and int(name) != os.getpid() and _is_marked(int(name), mark, session):
                    found += 1
                    if number is not None:
                        os.kill(int(name), number)
    return found


def _is_marked(pid: int, mark: bytes, session: int) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return mark in file.read().split(b"\0") and os.getsid(pid) == session
