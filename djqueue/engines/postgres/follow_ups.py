"""Make the follow-ups of finished jobs available."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from djqueue.engines.postgres.session import Session
from djqueue.engines.protocol import STAGE
from djqueue.exceptions import EngineBusy, EngineRefused

_RELEASE_MILLISECONDS = 10


def release(session: Session, keys: Sequence[str], now: datetime | None) -> set[str]:
    """Make the follow-ups that hold these keys available; return the queues to wake."""
    try:
        return released(session, keys, now)
    except (EngineRefused, EngineBusy):
        # Another transaction is taking or has taken one of the keys. The stager finds out which one.
        return {STAGE}


def released(session: Session, keys: Sequence[str], now: datetime | None) -> set[str]:
    rows = session.run("release", {"keys": keys, "milliseconds": _RELEASE_MILLISECONDS, "now": now})
    return {queue if state == "available" else STAGE for _, queue, state in rows}
