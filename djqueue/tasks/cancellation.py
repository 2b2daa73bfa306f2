"""A request to stop that the running task can read."""

from __future__ import annotations

import threading


class Cancelled:
    """Event-like: a task checks ``context.cancelled.is_set()`` between two steps, or waits on it instead of sleeping.

    Set when the job is cancelled, when its timeout has passed, and when its worker has to stop at once. It is only a
    request: a task that does not check it keeps running.
    """

    __slots__ = ("_event", "reason")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ""
        """The reason as a sentence; empty while the event is not set."""

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds (None: forever); return whether it is set."""
        return self._event.wait(timeout)

    def set(self, reason: str) -> None:
        """Ask the task to stop. Later calls do not change the first reason."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
