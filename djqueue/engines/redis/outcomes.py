"""Convert outcomes to the format of the scripts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from djqueue.engines.redis.codec import LONGEST_DELAY_SECONDS, NUMBERS
from djqueue.jobs.records import Ack


def outcome_bytes(acks: Sequence[Ack]) -> int:
    return sum([len(ack.result or "") + len(ack.error or "") for ack in acks])


def plain_columns(acks: Sequence[Ack]) -> list[Any]:
    """Return outcomes in the format of ``ack_plain.lua``; times are in microseconds before now."""
    now = time.monotonic()
    flat: list[Any] = []
    for id, claim, state, started, finished, result, _, _, is_spent, _, _, _, _ in acks:
        flat += (
            str(id),
            claim,
            NUMBERS[state],
            started is not None and int((now - started) * 1e6),
            max(0, int((now - finished) * 1e6)) if finished else 0,
            is_spent,
            result is not None and result != "null" and result,
        )
    return flat


def columns(acks: Sequence[Ack]) -> list[Any]:
    """Return outcomes in the format of ``ack.lua``, which is that of ``ack_plain.lua`` with three values more for each."""
    flat: list[Any] = []
    for ack in acks:
        flat += (
            *plain_columns([ack]),
            ack.error is not None and ack.error,
            int(min(max(ack.delay, 0.0), LONGEST_DELAY_SECONDS) * 1e6),
            ack.note is not None and ack.note,
        )
    return flat
