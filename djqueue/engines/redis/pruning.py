"""Convert retention rules to cutoff times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import MICROSECOND, NUMBERS, clock
from djqueue.jobs.records import PruneRule

PAGE = 500
"""How many jobs one run of a script examines."""
BEGINNING, _END = b"-inf", b"+inf"
_ALWAYS = 2**53
"""A time later than all others."""


def cutoffs(client: Client, rules: Sequence[PruneRule], now: datetime | None) -> list[Any]:
    """Convert ages and counts to times: jobs that finished before are deleted. Four values for each rule, for ``prune.lua``."""
    at = int(client.run("moment", clock(now)))
    flat: list[Any] = []
    for rule in rules:
        others = [o for o in rules if o.state == rule.state and (o.queue, o.task) != (rule.queue, rule.task)]
        cutoff = 0 if rule.max_age is None else max(0, at - rule.max_age // MICROSECOND)
        if rule.max_count == 0:
            cutoff = _ALWAYS
        elif rule.max_count is not None:
            cutoff = max(cutoff, _oldest_kept(client, rule, rule.max_count, others))
        flat += (NUMBERS[rule.state], rule.queue or False, rule.task or False, cutoff)
    return flat


def _oldest_kept(client: Client, rule: PruneRule, count: int, others: Sequence[PruneRule]) -> int:
    """Return when the oldest job that the count keeps ended; 0 if there are no more jobs than that.

    Scans the history backwards until it has seen that many jobs, or all of it. That is acceptable because it runs once
    per pass of the pruner, which then pauses for a multiple of the time that a pass took.
    """
    pack = client.pack
    arguments = (
        NUMBERS[rule.state],
        rule.queue or "",
        rule.task or "",
        pack([] if rule.queue or rule.task else [other.queue for other in others if other.queue]),
        pack([] if rule.task else [other.task for other in others if other.task]),
    )
    left, last, skip = count, _END, 0
    while True:
        looked_at, left, last, skip = client.run("prune_cutoff", *arguments, left, last, skip, PAGE)
        if left == 0:
            return int(last)
        if looked_at < PAGE:
            return 0
