"""The verbs that let finished jobs and unique keys go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from djqueue.engines.postgres.session import Session
from djqueue.jobs.records import Pruned, PruneRule


class Pruning(Session):
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
        cutoffs, at, id = place or (self._cutoffs(rules, now), "-infinity", 0)
        if not cutoffs:
            return Pruned(0, None)
        params = {
            "rule_state": [rule.state.value for rule, _ in cutoffs],
            "rule_queue": [rule.queue for rule, _ in cutoffs],
            "rule_task": [rule.task for rule, _ in cutoffs],
            "rule_cutoff": [cutoff for _, cutoff in cutoffs],
            "queue": queue,
            "after_at": at,
            "after_id": id,
            "limit": limit,
            "is_dry_run": is_dry_run,
        }
        [(seen, count, last_at, last_id)] = self._run("prune", params)
        return Pruned(count, (cutoffs, last_at, last_id) if seen == limit else None)

    def _cutoffs(self, rules: Sequence[PruneRule], now: datetime | None) -> list[tuple[PruneRule, str]]:
        """Turn ages and counts into times: what finished before goes."""
        cutoffs = []
        for rule in rules:
            others = [o for o in rules if o.state == rule.state and (o.queue, o.task) != (rule.queue, rule.task)]
            oldest = None
            if rule.max_count == 0:
                oldest = "infinity"
            elif rule.max_count is not None:
                params = {
                    "state": rule.state.value,
                    "queue": rule.queue,
                    "task": rule.task,
                    "other_queues": [] if rule.queue or rule.task else [o.queue for o in others if o.queue],
                    "other_tasks": [] if rule.task else [o.task for o in others if o.task],
                    "count": rule.max_count,
                }
                oldest = next((at for (at,) in self._run("prune_cutoff", params)), None)
            age = None if rule.max_age is None else rule.max_age.total_seconds()
            [(cutoff,)] = self._run("prune_time", {"age": age, "oldest": oldest, "now": now})
            cutoffs.append((rule, cutoff))
        return cutoffs

    def prune_keys(self, limit: int = 10_000, *, now: datetime | None = None) -> int:
        """Remove unique keys that nobody holds any more; return how many went."""
        [(expired, orphaned)] = self._run("prune_keys", {"limit": limit, "now": now})
        return int(expired + orphaned)
