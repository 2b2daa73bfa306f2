"""Convert retention rules to cutoff times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from djqueue.engines.postgres.session import Session
from djqueue.jobs.records import PruneRule


def cutoffs(session: Session, rules: Sequence[PruneRule], now: datetime | None) -> list[tuple[PruneRule, str]]:
    """Convert ages and counts to times: jobs that finished before their rule's time are deleted."""
    found = []
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
            oldest = next((at for (at,) in session.run("prune_cutoff", params)), None)
        age = None if rule.max_age is None else rule.max_age.total_seconds()
        [(cutoff,)] = session.run("prune_time", {"age": age, "oldest": oldest, "now": now})
        found.append((rule, cutoff))
    return found
