"""Remember how far a worker got in a queue, so that its fetch does not scan the dead index entries before that.

While a long transaction anywhere in the database stops VACUUM, every claimed job leaves a dead entry at the head of the
fetch index, and every fetch from the start scans all of them. So a worker remembers, per priority level, the key of the
job that it claimed last. When a scan from the start turns out to be long, the next fetches search after these keys, and in
the gaps between the known levels, where jobs of another level may have appeared (``fetch_after.sql``).

This shortcut can miss jobs: times and ids are not in commit order, and jobs are put back before the keys. So the search
begins at the start again

- whenever the shortcut finds fewer jobs than requested: at once if it finds none, else with the next fetch,
- once a second otherwise, or less often if such a scan is slow: scans take a twentieth of the time at most,
- at once when the caller reports that a job was put back,
- for as long as the scan from the start finds more jobs before a key than one fetch may take.

An empty result therefore always comes from a scan from the start.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from djqueue.jobs.records import ClaimedJob

SLOW_SECONDS = 0.001
"""A fetch from the start that takes no longer than this, plus the cost of its jobs, cannot have scanned far."""
JOB_SECONDS = 0.00001
CERTAIN_SECONDS = 0.1
"""While the shortcut is in use, a scan that takes this long counts as far; its pages need not be counted."""
FAR_BUFFERS = 100
"""A search for the first job that reads more pages than this has scanned far: a few thousand entries."""
SCAN_SECONDS = 1.0
SCAN_FACTOR = 20.0

_LOWEST, _HIGHEST = -32_768, 32_767
_FIRST = datetime(1, 1, 1, tzinfo=UTC)

Key = tuple[datetime, int]


class Place:
    """The fetch cursor of one queue on one connection."""

    __slots__ = ("_keys", "is_skipping", "look_at", "scan_at")

    def __init__(self) -> None:
        self._keys: dict[int, Key] = {}
        self.is_skipping = False
        self.scan_at = 0.0
        """Monotonic time at which a fetch has to begin at the start again."""
        self.look_at = 0.0
        """Monotonic time from which the length of a scan may be measured again."""

    def note_shortcut(self, jobs: Sequence[ClaimedJob], limit: int) -> None:
        self._advance(jobs)
        if len(jobs) < limit:
            self.scan_at = 0.0

    def note_scan(self, jobs: Sequence[ClaimedJob], limit: int, seconds: float) -> bool:
        """Record what a scan from the start found; return whether its length should be measured."""
        now = time.monotonic()
        is_behind = False
        if jobs:
            last = jobs[-1]
            before = self._keys.get(last.priority)
            is_behind = len(jobs) >= limit and before is not None and (last.ready_at, last.id) < before
            self._advance(jobs)
        # If it took as many as it may before a key, there may be more of them.
        self.scan_at = 0.0 if is_behind else now + max(SCAN_SECONDS, SCAN_FACTOR * seconds)
        if seconds <= SLOW_SECONDS + JOB_SECONDS * len(jobs):
            self.is_skipping = False
            return False
        return seconds < CERTAIN_SECONDS if self.is_skipping else now >= self.look_at

    def note_walk(self, buffers: int, seconds: float) -> None:
        """Record how many pages the search for the first job reads."""
        self.is_skipping = buffers > FAR_BUFFERS and bool(self._keys)
        self.look_at = time.monotonic() + max(SCAN_SECONDS, SCAN_FACTOR * seconds)
        if self.scan_at:
            self.scan_at += SCAN_FACTOR * seconds  # the measurement has scanned as well

    def ranges(self) -> dict[str, list[Any]]:
        """Return the ranges to search, in run order: above the highest level, in it after its key, below it, and so on."""
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
        """Advance the keys to the last job of each level. They never move back; the jobs are in run order."""
        if not jobs:
            return
        lasts = jobs[-1:]
        if jobs[0].priority != lasts[0].priority:
            lasts = list({job.priority: job for job in jobs}.values())
        for job in lasts:
            key = (job.ready_at, job.id)
            if (before := self._keys.get(job.priority)) is None or key > before:
                self._keys[job.priority] = key
