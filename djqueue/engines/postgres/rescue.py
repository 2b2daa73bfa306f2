"""Take jobs back: from dead workers, and those that a live worker does not know of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

from djqueue.engines.control import LOST, clean
from djqueue.engines.postgres.flows.effects import After
from djqueue.engines.postgres.flows.settling import settle_on
from djqueue.engines.postgres.session import Session
from djqueue.engines.postgres.wakes import put_back
from djqueue.jobs.records import Rescued


def rescue(
    session: Session,
    workers: Collection[UUID],
    *,
    ran: Mapping[int, int] | None = None,
    kept: Mapping[int, int] | None = None,
    as_noted: bool = False,
    reason: str = LOST,
    limit: int = 5000,
    now: datetime | None = None,
) -> Rescued:
    """See ``Maintainer.rescue`` and ``Fetcher.reclaim``."""
    [(requeued, discarded, queues, cancelled, left, counts, has_events)] = session.run(
        "rescue",
        {
            "workers": list(workers),
            "ran_id": None if ran is None else list(ran),
            "ran_claim": None if ran is None else list(ran.values()),
            "as_noted": as_noted,
            "kept_id": list(kept or ()),
            "kept_claim": list((kept or {}).values()),
            # The reason may quote a dead worker's last output, and an unusual byte in it must not prevent the rescue.
            "reason": clean(reason),
            "limit": limit,
            "now": now,
        },
    )
    session.wake({*queues, *map(put_back, queues)})
    if counts or has_events:
        settle_on(session, After(counts=counts or [], has_events=has_events), now)
    return Rescued(requeued, discarded, queues, cancelled, left)
