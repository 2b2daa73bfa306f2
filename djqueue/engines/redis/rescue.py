"""Take jobs back: from dead workers, and those that a live worker does not know of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

from djqueue.engines.control import LOST
from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import clock
from djqueue.engines.redis.settling import settle
from djqueue.jobs.encoding import storable
from djqueue.jobs.records import Rescued


def rescue(
    client: Client,
    workers: Collection[UUID] | None,
    *,
    ran: Mapping[int, int] | None = None,
    kept: Mapping[int, int] | None = None,
    as_noted: bool = False,
    reason: str = LOST,
    limit: int = 5000,
    now: datetime | None = None,
) -> Rescued:
    """``workers``: None for jobs whose worker is not registered."""
    if workers is not None and not workers:
        return Rescued()
    owners = b"" if workers is None else client.pack(list(map(str, workers)))
    knowledge = b"" if ran is None else client.pack({str(id): claim for id, claim in ran.items()})
    excepted = client.pack({str(id): claim for id, claim in (kept or {}).items()})
    # The reason may quote a dead worker's last output, and an unusual byte in it must not prevent the rescue.
    words = storable(reason)
    cursor, total = b"0", [0, 0, 0]
    queues: set[str] = set()
    while True:
        left = limit - sum(total)
        cursor, *counts, names = client.run(
            "rescue", cursor, owners, knowledge, excepted, words, left, clock(now), int(as_noted)
        )
        total = [one + more for one, more in zip(total, counts, strict=True)]
        queues.update(name.decode() for name in names)
        if cursor == b"0" or sum(total) >= limit:
            break
    requeued, discarded, cancelled = total
    if discarded or cancelled:
        settle(client, now)
    return Rescued(requeued, discarded, sorted(queues), cancelled) if sum(total) else Rescued()
