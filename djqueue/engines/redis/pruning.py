"""Delete what has been kept long enough: finished jobs by their rules, and unique keys that nobody holds any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import MICROSECOND, NUMBERS, clock
from djqueue.jobs.records import Pruned, PruneRule

_PAGE = 500
"""So many jobs are looked at by one run of a script."""
_BEGINNING, _END = b"-inf", b"+inf"
_ALWAYS = 2**53
"""A time after all others."""


class Pruning:
    _client: Client

    def prune(
        self,
        rules: Sequence[PruneRule],
        *,
        place: Any = None,
        limit: int = 1000,
        queue: str | None = None,
        is_dry_run: bool = False,
        now: datetime | None = None,
    ) -> Pruned:
        """Look at the next ``limit`` finished jobs, oldest first, and delete those that their rule lets go."""
        cutoffs, at, skip = place or (self._cutoffs(rules, now), _BEGINNING, 0)
        count = seen = 0
        while wanted := min(limit - seen, _PAGE):
            looked_at, gone, at, skip = self._client.run(
                "prune", self._client.pack(cutoffs), queue or "", at, skip, wanted, int(is_dry_run)
            )
            seen, count = seen + looked_at, count + gone
            if looked_at < wanted:
                return Pruned(count, None)
        return Pruned(count, (cutoffs, at, skip))

    def prune_keys(self, limit: int = 10_000, *, now: datetime | None = None) -> int:
        """Remove unique keys that nobody holds any more; return how many went."""
        count = 0
        expired_left = kept_left = limit
        after = _BEGINNING
        while expired_left or kept_left:
            wanted, wanted_kept = min(expired_left, _PAGE), min(kept_left, _PAGE)
            expired, looked_at, orphaned, after = self._client.run("prune_keys", clock(now), wanted, wanted_kept, after)
            count += expired + orphaned
            expired_left = expired_left - expired if expired == wanted else 0
            kept_left = kept_left - looked_at if looked_at == wanted_kept else 0
        return count

    def _cutoffs(self, rules: Sequence[PruneRule], now: datetime | None) -> list[Any]:
        """Turn ages and counts into times: what finished before goes. Four values for each rule, as ``prune.lua`` takes them."""
        at = int(self._client.run("moment", clock(now)))
        flat: list[Any] = []
        for rule in rules:
            others = [o for o in rules if o.state == rule.state and (o.queue, o.task) != (rule.queue, rule.task)]
            cutoff = 0 if rule.max_age is None else max(0, at - rule.max_age // MICROSECOND)
            if rule.max_count == 0:
                cutoff = _ALWAYS
            elif rule.max_count is not None:
                cutoff = max(cutoff, self._oldest_kept(rule, rule.max_count, others))
            flat += (NUMBERS[rule.state], rule.queue or False, rule.task or False, cutoff)
        return flat

    def _oldest_kept(self, rule: PruneRule, count: int, others: Sequence[PruneRule]) -> int:
        """Return when the oldest job ended that may stay by count; 0 if there are not more.

        Walks the history backwards until it has seen that many, all of it if there are fewer: asked once per pass of the
        pruner, which rests for a multiple of what a pass took.
        """
        pack = self._client.pack
        arguments = (
            NUMBERS[rule.state],
            rule.queue or "",
            rule.task or "",
            pack([] if rule.queue or rule.task else [other.queue for other in others if other.queue]),
            pack([] if rule.task else [other.task for other in others if other.task]),
        )
        left, last, skip = count, _END, 0
        while True:
            looked_at, left, last, skip = self._client.run("prune_cutoff", *arguments, left, last, skip, _PAGE)
            if left == 0:
                return int(last)
            if looked_at < _PAGE:
                return 0
