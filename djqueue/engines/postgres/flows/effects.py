"""What the end of a job does to the jobs and flows that wait for it: verbs inside a transaction.

``After`` collects what is left to be done once that transaction has committed: queues to wake, counts to be added up, events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from djqueue.engines.postgres.columns import array, numbers
from djqueue.engines.postgres.execution import Execute
from djqueue.engines.protocol import STAGE

EDGES_LIMIT = 5000
"""How many dependencies one transaction lets an end take effect on."""
REST_LIMIT = 1000


class End(NamedTuple):
    """The end of a job or a flow, as ``flow_release.sql`` takes it."""

    id: int
    state: str
    only_id: int | None = None
    """The one dependent for which it takes effect. None: for all."""
    after: int | None = None
    """Its effect on dependents up to this id came before."""
    until: int | None = None
    """Dependents with higher ids began to wait later, and are not affected."""


@dataclass(slots=True)
class After:
    """What follows the commit."""

    queues: set[str] = field(default_factory=set)
    counts: list[int] = field(default_factory=list)
    """Ids of rows to be added up."""
    has_events: bool = False

    def __bool__(self) -> bool:
        return bool(self.queues or self.counts or self.has_events)

    def add(self, other: After) -> None:
        self.queues |= other.queues
        self.counts += other.counts
        self.has_events |= other.has_events


def release(
    execute: Execute, ends: Sequence[End], after: After, now: datetime | None, *, limit: int = EDGES_LIMIT
) -> None:
    """Release the jobs that wait for nothing else, and stop those that can no longer begin.

    What is beyond ``limit`` dependencies is left to events, so that no ack takes long.
    """
    if not ends:
        return
    params: dict[str, Any] = {
        "id": numbers([end.id for end in ends]),
        "state": array([end.state for end in ends]),
        "only_id": _numbers(end.only_id for end in ends),
        "after": _numbers(end.after for end in ends),
        "until": _numbers(end.until for end in ends),
        "limit": limit,
        "now": now,
    }
    [(queues, edges, is_scheduled, has_stops)] = execute("flow_release", params)
    after.queues.update(queues)
    if is_scheduled:
        after.queues.add(STAGE)
    if has_stops and (stopped := execute("flow_stop", params)):
        after.counts += stopped[0][1] or ()
        after.has_events = True
    if edges >= limit:
        execute("flow_postpone", params)
        after.has_events = True


def _numbers(values: Iterable[int | None]) -> str:
    return array(["NULL" if value is None else value for value in values])


def control(
    execute: Execute, verb: str, subject: int, asked: dict[str, str], after: After, now: datetime | None
) -> None:
    """Cancel, discard or delete a suspended job, or cancel the rest of a flow, a slice at a time."""
    by, reason = asked.get("by", ""), asked.get("reason", "A job of its workflow did not complete.")
    params = {"ids": [subject], "only": None, "by": by, "reason": reason, "is_settling": True, "now": now}
    if verb == "cancel" and (rest := execute("flow_rest", {"id": subject, "limit": REST_LIMIT})):
        # Suspended jobs first and alone: a transaction that locks them locks no other job, or it could deadlock with an ack.
        params["ids"] = [id for id, is_suspended in rest if is_suspended] or [id for id, _ in rest]
        execute("flow_cancel_rest", {"id": subject, "detail": json.dumps({"by": by, "reason": reason})})
        after.has_events = True
    rows = execute(verb, params)
    note_ends(rows, after)
    if running := [f"cancel:{id}" for id, state, *_ in rows if state == "executing"]:
        execute("notify", {"queues": running})


def retry(execute: Execute, subject: int, after: After, now: datetime | None) -> bool:
    """Bring a finished job back, or what failed in a flow, and what was stopped because of it; False if other effects come first."""
    execute("flow_retry_lock", {"is_retry": True})
    [(jobs, flows, has_waiting, is_held)] = execute("flow_revivable", {"id": subject})
    if has_waiting:
        execute("flow_retry_again", {"id": subject})
        return False
    if jobs and not is_held:
        rows = execute("flow_revive", {"jobs": numbers(jobs), "flows": numbers(flows), "now": now})
        after.queues.update(queue for _, queue, state in rows if state == "available")
        after.has_events = True
    return True


def note_ends(rows: Sequence[Sequence[Any]], after: After) -> None:
    """Note what follows the commit of a statement that ends jobs; its rows end in is_awaited, counts."""
    after.counts += {id for row in rows for id in row[-1] or ()}
    after.has_events |= any(row[-2] for row in rows)


def fold(execute: Execute, counts: Sequence[int] | None, limit: int, after: After, now: datetime | None) -> int:
    """Add up counts (None: the oldest that were left behind), finish flows that are full, and their wholes; return how many counts.

    A flow is looked at in a statement after the one that locks it: two last parts would each miss the other's end otherwise.
    """
    ids = None if counts is None else numbers(list(counts))
    rows = execute("flow_fold", {"ids": ids, "limit": limit, "now": now})
    full = [id for id, may_be_done, *_ in rows if may_be_done]
    failing = [id for id, _, is_failing, *_ in rows if is_failing]
    after.has_events |= bool(rows) and rows[0][4]
    while full or failing:
        release(execute, [End(id, "failing") for id in failing], after, now)
        finished = execute("flow_finish", {"ids": numbers(full), "now": now}) if full else []
        release(execute, [End(id, state) for id, _, is_awaited, state in finished if is_awaited], after, now)
        failed = {id for id, _, _, state in finished if state == "failed"}.union(failing)
        parts = {id for id, whole_id, _, _ in finished if whole_id is not None}.union(failing)
        wholes = _wholes(execute, parts, failed, now) if parts else []
        full = [id for id, _, _ in wholes]
        failing = [id for id, is_failing, _ in wholes if is_failing]
        after.has_events |= bool(wholes) and wholes[0][2]
    return int(rows[0][3]) if rows else 0


def _wholes(execute: Execute, parts: Iterable[int], failed: Iterable[int], now: datetime | None) -> Any:
    return execute("flow_whole", {"ids": numbers(sorted(parts)), "failed": numbers(sorted(failed)), "now": now})


def link(
    execute: Execute, upstream: int, dependents: Sequence[tuple[int, str]], after: After, now: datetime | None
) -> None:
    """Let stored jobs, each with its rule, wait for a job or flow that was stored before them."""
    rules = dict(dependents)
    params: dict[str, Any] = {
        "upstream": upstream,
        "downstream": numbers(list(rules)),
        "rule": array(list(rules.values())),
    }
    execute("flow_retry_lock", {"is_retry": False})
    [(has_ended, is_failing, queue)] = execute("flow_link", params)
    if queue is not None:
        after.queues.add(queue)
    ends = []
    if has_ended:
        ends = [End(upstream, state, id) for id, state in execute("flow_link_states", params)]
        # The rule for a failure is met by the first one of a flow.
        ends = [
            end._replace(state="failing") if end.state == "failed" and rules[end.only_id or 0] == "f" else end
            for end in ends
        ]
    elif is_failing:
        ends = [End(upstream, "failing", id) for id, rule in rules.items() if rule == "f"]
    release(execute, ends, after, now)
