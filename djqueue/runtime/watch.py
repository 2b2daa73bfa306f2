"""What a producer knows of a queue without looking.

A look costs a statement, and so does each change of a mark, so there should be few of both. Three ways to wait, by how
fast jobs come:

- Now and then: the queue is marked, and the mark stands. Whoever makes a job available wakes us, we look, find it, and
  sleep again: the mark stood, so a job that this look did not see wakes us anew. One look per job.
- More often than every other millisecond: to be woken for each costs everybody more than to look. Then nobody needs to
  wake us: the mark is given up and the queue is looked at once a millisecond, until nothing has come for a while. (The
  drivers of network cards do the same with their interrupts.)
- The lane is full: a look is no use before there is room. For a moment the mark may stand, most lanes have room again
  soon; then it goes, so that others do not wake a worker that can take nothing.
"""

from __future__ import annotations

import time

LOOK_SECONDS = 0.001
"""Between two looks at a queue in which jobs come fast."""
FAST_SECONDS = 0.002
"""Jobs come fast when there is less than this between two of them."""
STILL_SECONDS = 0.005
"""When nothing has come for so long, the fast times are over."""
FULL_SECONDS = 0.01
"""How long a mark stands while the lane is full."""

_LONGEST_GAP = 0.05
"""After an hour without a job it should not take an hour to notice that they come fast."""


class Watch:
    """One queue, as seen by one producer."""

    __slots__ = ("_found_at", "_gap", "full_since", "is_marked", "is_quiet")

    def __init__(self) -> None:
        self.is_marked = False
        """Whether we asked for a mark, which we, another sleeper or, without wake-ups, nobody may have."""
        self.is_quiet = False
        """It was found empty while it was marked, and nobody has said anything since: a look would find nothing."""
        self.full_since: float | None = None
        """Since when its lane has no room, by the monotonic clock."""
        self._gap = _LONGEST_GAP
        """Smoothed seconds from one job to the next."""
        self._found_at = 0.0

    def note_found(self, count: int) -> None:
        """Take down that a look has found so many jobs."""
        now = time.monotonic()
        gap = min(now - self._found_at, _LONGEST_GAP) / count
        self._gap += (gap - self._gap) * 0.2
        self._found_at = now

    @property
    def is_fast(self) -> bool:
        """Whether jobs come so fast that it is better to look than to be woken."""
        return self._gap < FAST_SECONDS and time.monotonic() - self._found_at < STILL_SECONDS
