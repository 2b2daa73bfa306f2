"""Outcomes of jobs that run at most once. Their rows left the live table with the fetch, so their history is inserted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from djqueue.jobs.records import Ack, TakenJob


def taken_statements(acks: Sequence[Ack], now: object, *, with_keys: bool = True) -> list[tuple[str, dict[str, Any]]]:
    """Return the statements that store these outcomes."""
    finished = [ack for ack in acks if ack.state.is_final]
    unbegun = [ack for ack in acks if not ack.state.is_final]
    statements: list[tuple[str, dict[str, Any]]] = []
    if finished:
        clock = time.monotonic()
        outcome: dict[str, Any] = {
            "attempted_by": [ack.taken.attempted_by for ack in finished if ack.taken],
            "state": [ack.state.value for ack in finished],
            "started_ago": [None if ack.started is None else clock - ack.started for ack in finished],
            "finished_ago": [max(0.0, clock - ack.finished) if ack.finished else 0.0 for ack in finished],
            "result": [ack.result for ack in finished],
            "error": [ack.error for ack in finished],
            "is_spent": [ack.is_spent for ack in finished],
        }
        statements.append(("record", {**_columns(finished), **outcome, "now": now}))
    if unbegun:
        delays = [max(0.0, ack.delay) for ack in unbegun]
        notes = [ack.note for ack in unbegun]
        keys = [ack.taken.unique_key if with_keys else None for ack in unbegun if ack.taken]
        statements.append(
            ("put_back", {**_columns(unbegun), "unique_key": keys, "delay": delays, "note": notes, "now": now})
        )
    return statements


def _columns(acks: Sequence[Ack]) -> dict[str, list[Any]]:
    jobs = [ack.taken for ack in acks if ack.taken is not None]
    return dict(zip(TakenJob._fields, map(list, zip(*jobs, strict=True)), strict=True))
