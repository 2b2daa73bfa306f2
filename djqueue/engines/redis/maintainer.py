"""Maintain the queue on Redis: stage, rescue, prune, elect the leader."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from djqueue.engines.control import LOST
from djqueue.engines.redis.codec import clock
from djqueue.engines.redis.pruning import BEGINNING, PAGE, cutoffs
from djqueue.engines.redis.rescue import rescue
from djqueue.engines.redis.session import Session, name_of
from djqueue.engines.redis.settling import settle
from djqueue.exceptions import EngineDenied, EngineRefused
from djqueue.jobs.flows import Settled
from djqueue.jobs.records import Lease, Pruned, PruneRule, Rescued, Staged

logger = logging.getLogger("djqueue.engine")

_STAGED_AT_ONCE = 500


class RedisMaintainer(Session):
    """No verb waits or skips locked jobs: the server runs one script at a time, so there are no locks."""

    def stage(self, limit: int = 5000, *, now: datetime | None = None) -> Staged:
        count, next_in = 0, None
        queues: set[str] = set()
        while (wanted := min(limit - count, _STAGED_AT_ONCE)) > 0:
            staged, next_in, names = self._client.run("stage", wanted, clock(now))
            count += staged
            queues.update(name.decode() for name in names)
            if staged < wanted:
                break
        return Staged(count, sorted(queues), None if next_in is None else next_in / 1e6)

    def rescue(
        self,
        workers: Collection[UUID],
        *,
        ran: Mapping[int, int] | None = None,
        as_noted: bool = False,
        reason: str = LOST,
        limit: int = 5000,
        now: datetime | None = None,
    ) -> Rescued:
        return rescue(self._client, workers, ran=ran, as_noted=as_noted, reason=reason, limit=limit, now=now)

    def rescue_ownerless(self, *, limit: int = 5000, now: datetime | None = None) -> Rescued:
        reason = "The worker was lost and is no longer registered."
        return rescue(self._client, None, as_noted=True, reason=reason, limit=limit, now=now)

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
        limits, at, skip = place or (cutoffs(self._client, rules, now), BEGINNING, 0)
        count = seen = 0
        while wanted := min(limit - seen, PAGE):
            looked_at, gone, at, skip = self._client.run(
                "prune", self._client.pack(limits), queue or "", at, skip, wanted, int(is_dry_run)
            )
            seen, count = seen + looked_at, count + gone
            if looked_at < wanted:
                return Pruned(count, None)
        return Pruned(count, (limits, at, skip))

    def prune_keys(self, limit: int = 10_000, *, now: datetime | None = None) -> int:
        count = 0
        expired_left = kept_left = limit
        after = BEGINNING
        while expired_left or kept_left:
            wanted, wanted_kept = min(expired_left, PAGE), min(kept_left, PAGE)
            expired, looked_at, orphaned, after = self._client.run("prune_keys", clock(now), wanted, wanted_kept, after)
            count += expired + orphaned
            expired_left = expired_left - expired if expired == wanted else 0
            kept_left = kept_left - looked_at if looked_at == wanted_kept else 0
        return count

    def settle(self, limit: int = 1000, *, now: datetime | None = None) -> Settled:
        return settle(self._client, now, limit)

    def elect(
        self, holder: UUID, ttl_seconds: float, *, loops: Mapping[str, float] | None = None, now: datetime | None = None
    ) -> Lease:
        ages = self._client.pack({name: int(seconds * 1e6) for name, seconds in (loops or {}).items()})
        term = self._client.run("elect", str(holder), int(ttl_seconds * 1e6), ages, clock(now))
        return Lease(False, 0) if term is None else Lease(True, term)

    def resign(self, holder: UUID) -> None:
        self._client.run("resign", str(holder))

    def bury(self, workers: Mapping[UUID, int | None]) -> set[UUID]:
        if not workers:
            return set()
        pairs = [text for worker, beat in workers.items() for text in (str(worker), "" if beat is None else str(beat))]
        return {UUID(worker.decode()) for worker in self._client.run("bury", *pairs)}

    def disconnect(self, workers: Collection[UUID]) -> int:
        """Commands that arrived on these connections but were not read are dropped."""
        names = {name_of(worker) for worker in workers}
        count = 0
        try:
            clients: str = self._client.command("CLIENT", "LIST").decode() if names else ""
            for line in clients.splitlines():
                about = dict(part.partition("=")[::2] for part in line.split(" "))
                if about.get("name") in names:
                    count += self._client.command("CLIENT", "KILL", "ID", about["id"])
        except (EngineRefused, EngineDenied) as error:
            # The user may lack this permission. Then the next rescue, ten seconds later, finds the jobs of claims that
            # arrive late.
            logger.warning("Could not close the connections of a dead worker: %s", error)
        return count

    def deregister(self, workers: Collection[UUID]) -> None:
        if workers:
            self._client.run("deregister", *map(str, workers))
