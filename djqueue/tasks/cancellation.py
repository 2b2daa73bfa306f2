"""A request to stop, as the running task sees it."""

from __future__ import annotations

import threading


class Cancelled:
    """Event-like: a task asks ``context.cancelled.is_set()`` between two steps, or waits on it instead of sleeping.

    Set when somebody cancels the job, when its timeout has passed, and when its worker is told to leave at once. It asks
    only; a task that does not look goes on.
    """

    __slots__ = ("_event", "reason")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason = ""
        """Why, in a sentence; '' while it is not set."""

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds (None: for ever); return whether it is set."""
        return self._event.wait(timeout)

    def set(self, reason: str) -> None:
        """Ask the task to stop. The first reason stays."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
