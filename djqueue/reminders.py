"""Log a lasting problem at once, and again after growing pauses: a line per second would hide other lines."""

from __future__ import annotations

import time

_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 60.0


class Reminder:
    def __init__(self) -> None:
        self._what = ""
        self._due = self._pause = 0.0

    def is_due(self, what: str) -> bool:
        """Return whether to log it now: it is new, or was last logged long enough ago."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._pause = what, _FIRST_PAUSE_SECONDS
        elif now < self._due:
            return False
        else:
            self._pause = min(_LONGEST_PAUSE_SECONDS, 2 * self._pause)
        self._due = now + self._pause
        return True

    def forget(self) -> None:
        """Log the next occurrence at once, because this one is over."""
        self._what = ""
