"""Where a worker got to in a queue, so that its fetch need not walk past what is no longer there.

While somebody's long transaction stops VACUUM, every claimed job leaves a dead entry at the head of the fetch index, and
every fetch from the start walks past all of them. So a worker remembers, per priority level, the key of the job that it
claimed last. When a scan from the start turns out to walk far, the next fetches search after these keys, and in the gaps
between the known levels, where a level may have appeared (``fetch_after.sql``).

That is a shortcut and no more. Times and ids are not in commit order, and jobs are put back before the keys. So the
search begins at the start again

- whenever the shortcut finds less than it was asked for: at once if it finds nothing, else with the next fetch,
- once a second otherwise, or less often if such a scan is slow: it takes a twentieth of the time at most,
- at once when the caller says so, because somebody put a job back,
- for as long as the scan from the start finds more before a key than it may take.

An empty answer therefore always comes from a scan from the start.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from djqueue.jobs.records import ClaimedJob

SLOW_SECONDS = 0.001
"""A fetch from the start that takes no longer than this, plus the price of its jobs, cannot have walked far."""
JOB_SECONDS = 0.00001
CERTAIN_SECONDS = 0.1
"""While the shortcut is taken, a scan that takes so long need not be asked whether it walks far."""
FAR_BUFFERS = 100
"""A search for the first job that reads more pages than this has walked far: a few thousand entries."""
SCAN_SECONDS = 1.0
SCAN_FACTOR = 20.0

_LOWEST, _HIGHEST = -32_768, 32_767
_FIRST = datetime(1, 1, 1, tzinfo=UTC)

Key = tuple[datetime, int]


class Place:
    """One queue, as seen by one connection."""

    __slots__ = ("_keys", "is_skipping", "look_at", "scan_at")

    def __init__(self) -> None:
        self._keys: dict[int, Key] = {}
        self.is_skipping = False
        self.scan_at = 0.0
        """When the next fetch has to begin at the start, by the monotonic clock."""
        self.look_at = 0.0
        """When it may be asked again how far a scan walks."""

    def note_shortcut(self, jobs: Sequence[ClaimedJob], limit: int) -> None:
        self._advance(jobs)
        if len(jobs) < limit:
            self.scan_at = 0.0

    def note_scan(self, jobs: Sequence[ClaimedJob], limit: int, seconds: float) -> bool:
        """Take down what a scan from the start found; return whether it is worth asking how far it walked."""
        now = time.monotonic()
        is_behind = False
        if jobs:
            last = jobs[-1]
            before = self._keys.get(last.priority)
            is_behind = len(jobs) >= limit and before is not None and (last.ready_at, last.id) < before
            self._advance(jobs)
        # Where it found as many as it may take before a key, there may be more of them.
        self.scan_at = 0.0 if is_behind else now + max(SCAN_SECONDS, SCAN_FACTOR * seconds)
        if seconds <= SLOW_SECONDS + JOB_SECONDS * len(jobs):
            self.is_skipping = False
            return False
        return seconds < CERTAIN_SECONDS if self.is_skipping else now >= self.look_at

    def note_walk(self, buffers: int, seconds: float) -> None:
        """Take down how many pages the search for the first job reads."""
        self.is_skipping = buffers > FAR_BUFFERS and bool(self._keys)
        self.look_at = time.monotonic() + max(SCAN_SECONDS, SCAN_FACTOR * seconds)
        if self.scan_at:
            self.scan_at += SCAN_FACTOR * seconds  # the look has walked too

    def ranges(self) -> dict[str, list[Any]]:
        """Return where to search, in run order: above the highest level, in it after its key, below it, and so on."""
        levels: list[int | None] = []
        above: list[int | None] = []
        below: list[int | None] = []
        keys: list[Key] = []
        upper = _HIGHEST
        for level in [*sorted(self._keys, reverse=True), None]:
            lower = _LOWEST if level is None else level
            if upper - lower > 1:
                levels.append(None)
                above.append(lower)
                below.append(upper)
                keys.append((_FIRST, 0))
            if level is not None:
                levels.append(level)
                above.append(None)
                below.append(None)
                keys.append(self._keys[level])
                upper = level
        ats, ids = zip(*keys, strict=True)
        return {"levels": levels, "above": above, "below": below, "after_at": list(ats), "after_id": list(ids)}

    def _advance(self, jobs: Sequence[ClaimedJob]) -> None:
        """Move the keys on to the last job of each level; never back, and the jobs are in run order."""
        if not jobs:
            return
        lasts = jobs[-1:]
        if jobs[0].priority != lasts[0].priority:
            lasts = list({job.priority: job for job in jobs}.values())
        for job in lasts:
            key = (job.ready_at, job.id)
            if (before := self._keys.get(job.priority)) is None or key > before:
                self._keys[job.priority] = key
