"""Decide how a producer waits for jobs of a queue.

A fetch costs a statement, and so does each change of a mark, so there should be few of both. There are three ways to
wait, by how fast jobs come:

- Now and then: the queue is marked, and the mark stands. The process that makes a job available wakes the worker, which
  fetches it and sleeps again: the mark stood, so a job that this fetch did not see wakes it again. One fetch per job.
- More often than every other millisecond: a wake-up for each job costs both sides more than a fetch. So the mark is
  removed and the queue is fetched from once a millisecond, until nothing has come for a while. (The drivers of network
  cards do the same with their interrupts.)
- The lane is full: a fetch is useless before there is room. The mark stands for a moment, because most lanes have room
  again soon; then it is removed, so that others do not wake a worker that can take nothing.
"""

from __future__ import annotations

import time

LOOK_SECONDS = 0.001
"""Between two looks at a queue in which jobs come fast."""
FAST_SECONDS = 0.002
"""Jobs come fast when there is less than this between two of them."""
STILL_SECONDS = 0.005
"""After this time without a job, jobs no longer come fast."""
FULL_SECONDS = 0.01
"""How long a mark stands while the lane is full."""

_LONGEST_GAP = 0.05
"""After an hour without a job, it must not take an hour to notice that jobs come fast."""


class Watch:
    """One queue, as seen by one producer."""

    __slots__ = ("_found_at", "_gap", "full_since", "is_marked", "is_quiet")

    def __init__(self) -> None:
        self.is_marked = False
        """Whether a mark was requested. This worker has it, or another one, or none where there are no wake-ups."""
        self.is_quiet = False
        """The queue was empty while it was marked, and no wake-up has come since: a fetch would find nothing."""
        self.full_since: float | None = None
        """When its lane ran out of room, by the monotonic clock, or None."""
        self._gap = _LONGEST_GAP
        """Smoothed seconds from one job to the next."""
        self._found_at = 0.0

    def note_found(self, count: int) -> None:
        """Record that a fetch has found ``count`` jobs."""
        now = time.monotonic()
        gap = min(now - self._found_at, _LONGEST_GAP) / count
        self._gap += (gap - self._gap) * 0.2
        self._found_at = now

    @property
    def is_fast(self) -> bool:
        """Whether jobs come so fast that polling costs less than wake-ups."""
        return self._gap < FAST_SECONDS and time.monotonic() - self._found_at < STILL_SECONDS
