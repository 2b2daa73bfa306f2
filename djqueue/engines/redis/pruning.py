"""Turn the rules of what is kept into times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import MICROSECOND, NUMBERS, clock
from djqueue.jobs.records import PruneRule

PAGE = 500
"""So many jobs are looked at by one run of a script."""
BEGINNING, _END = b"-inf", b"+inf"
_ALWAYS = 2**53
"""A time after all others."""


def cutoffs(client: Client, rules: Sequence[PruneRule], now: datetime | None) -> list[Any]:
    """Turn ages and counts into times: what finished before goes. Four values for each rule, as ``prune.lua`` takes them."""
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
    """Return when the oldest job ended that may stay by count; 0 if there are not more.

    Walks the history backwards until it has seen that many, all of it if there are fewer: asked once per pass of the
    pruner, which rests for a multiple of what a pass took.
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
