"""Maintain the queue on PostgreSQL: stage, rescue, prune, elect the leader."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from djqueue.engines.control import LOST
from djqueue.engines.postgres.connection import STATEMENT_TIMEOUT_SECONDS, application_name, role_of
from djqueue.engines.postgres.flows.settling import Settler, on_session
from djqueue.engines.postgres.follow_ups import released
from djqueue.engines.postgres.listener import PostgresListener
from djqueue.engines.postgres.pruning import cutoffs
from djqueue.engines.postgres.rescue import rescue
from djqueue.engines.postgres.session import Session
from djqueue.engines.protocol import STAGE
from djqueue.exceptions import EngineBusy, EngineDenied, EngineRefused
from djqueue.jobs.flows import Settled
from djqueue.jobs.records import Lease, Pruned, PruneRule, Rescued, Staged

logger = logging.getLogger("djqueue.engine")

_SLOW_STAGE, _JOB_STAGE = 0.005, 0.0001  # seconds: a search that takes longer has scanned dead entries
_TAKEN_SECONDS = 1.0


class PostgresMaintainer(Session):
    def __init__(
        self,
        alias: str,
        *,
        listen: bool = True,
        statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS,
        lock_timeout_seconds: float = 0,
    ) -> None:
        super().__init__(
            alias,
            listen=listen,
            statement_timeout_seconds=statement_timeout_seconds,
            lock_timeout_seconds=lock_timeout_seconds,
        )
        self._unstageable: list[int] = []
        self._unsettleable: set[int] = set()
        self._taken_keys: dict[str, float] = {}
        """Unique keys taken by transactions that are still open → monotonic time until which their follow-ups are skipped."""
        self._staged_until: str | None = None
        self._stage_all_at = 0.0
        """Monotonic time until which staging continues where the last run ended."""

    def stage(self, limit: int = 5000, *, now: datetime | None = None) -> Staged:
        """A job that the database refuses to stage is logged and skipped from then on; the others of its batch are staged.

        Where dead index entries make the search from the start slow, search only after the jobs that the last full search
        staged.
        """
        began = time.monotonic()
        is_skipping = now is None and began < self._stage_all_at
        since = self._staged_until if is_skipping else None
        params = {"limit": limit, "ids": None, "skip": self._unstageable, "since": since, "now": now}
        try:
            [(*values, at)] = self.run("stage", params)
            staged = Staged(*values)
        except EngineRefused:
            due = [id for (id,) in self.run("due", {"limit": limit, "skip": self._unstageable, "now": now})]
            parts = self._stage_in_parts(due, now)
            staged = Staged(sum(part.count for part in parts), sorted({q for part in parts for q in part.queues}), 0.0)
        else:
            if not is_skipping:
                seconds = time.monotonic() - began
                is_slow = staged.count < limit and seconds > _SLOW_STAGE + _JOB_STAGE * staged.count
                self._stage_all_at = began + max(1.0, 20 * seconds) if is_slow else 0.0
            if staged.count < limit:
                self._staged_until = at
        self._taken_keys = {key: until for key, until in self._taken_keys.items() if until > began}
        keys = [key for (key,) in self.run("follow_ups", {"limit": limit}) if key not in self._taken_keys]
        if keys:
            staged = replace(staged, queues=sorted({*staged.queues, *self._release_in_parts(keys, now)}))
        self.wake(staged.queues)
        return staged

    def _stage_in_parts(self, ids: list[int], now: datetime | None) -> list[Staged]:
        try:
            rows = self.run("stage", {"limit": len(ids), "ids": ids, "skip": [], "since": None, "now": now})
        except EngineRefused as error:
            if len(ids) > 1:
                middle = len(ids) // 2
                return self._stage_in_parts(ids[:middle], now) + self._stage_in_parts(ids[middle:], now)
            logger.error("Cannot stage job %d; skipping it until the leader changes: %s", ids[0], error)
            self._unstageable.append(ids[0])
            return []
        return [Staged(*values) for *values, _ in rows]

    def _release_in_parts(self, keys: Sequence[str], now: datetime | None) -> set[str]:
        try:
            return released(self, keys, now)
        except EngineRefused:
            if len(keys) == 1:
                return set()  # the job that has just taken the key runs before its follow-up
        except EngineBusy:
            if len(keys) == 1:
                # If each search tried these keys again, each would wait for the open transaction.
                self._taken_keys[keys[0]] = time.monotonic() + _TAKEN_SECONDS
                return set()
        middle = len(keys) // 2
        return self._release_in_parts(keys[:middle], now) | self._release_in_parts(keys[middle:], now)

    def settle(self, limit: int = 1000, *, now: datetime | None = None) -> Settled:
        """An event that the database refuses is logged and skipped from then on."""
        settler = Settler(on_session(self), now, skipped=self._unsettleable)
        settled = settler.settle(limit)
        self.wake(settler.queues)
        return settled

    def open_listener(self) -> PostgresListener:
        """The listener also notifies the stager of jobs that are due soon."""
        return PostgresListener(self._alias, listen=self._listen, translate=self._hear)

    def _hear(self, name: str) -> str:
        if name == STAGE:
            self._stage_all_at = 0.0  # a due job may have been committed late
        return name

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
        return rescue(self, workers, ran=ran, as_noted=as_noted, reason=reason, limit=limit, now=now)

    def rescue_ownerless(self, *, limit: int = 5000, now: datetime | None = None) -> Rescued:
        claimers = [claimer for (claimer,) in self.run("ownerless", {})]
        if not claimers:
            return Rescued()
        reason = "The worker was lost and is no longer registered."
        return self.rescue(claimers, as_noted=True, reason=reason, limit=limit, now=now)

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
        limits, at, id = place or (cutoffs(self, rules, now), "-infinity", 0)
        if not limits:
            return Pruned(0, None)
        params = {
            "rule_state": [rule.state.value for rule, _ in limits],
            "rule_queue": [rule.queue for rule, _ in limits],
            "rule_task": [rule.task for rule, _ in limits],
            "rule_cutoff": [cutoff for _, cutoff in limits],
            "queue": queue,
            "after_at": at,
            "after_id": id,
            "limit": limit,
            "is_dry_run": is_dry_run,
        }
        [(seen, count, last_at, last_id)] = self.run("prune", params)
        return Pruned(count, (limits, last_at, last_id) if seen == limit else None)

    def prune_keys(self, limit: int = 10_000, *, now: datetime | None = None) -> int:
        [(expired, orphaned)] = self.run("prune_keys", {"limit": limit, "now": now})
        return int(expired + orphaned)

    def elect(
        self, holder: UUID, ttl_seconds: float, *, loops: Mapping[str, float] | None = None, now: datetime | None = None
    ) -> Lease:
        params = {"holder": holder, "ttl": ttl_seconds, "loops": json.dumps(dict(loops or {})), "now": now}
        rows = self.run("elect", params)
        return Lease(True, rows[0][0]) if rows else Lease(False, 0)

    def resign(self, holder: UUID) -> None:
        self.run("resign", {"holder": holder})

    def bury(self, workers: Mapping[UUID, int | None]) -> set[UUID]:
        return {id for (id,) in self.run("bury", {"workers": list(workers), "beats": list(workers.values())})}

    def disconnect(self, workers: Collection[UUID]) -> int:
        """Return 0 behind a pooler, where workers share connections."""
        if not self._listen or not workers:
            return 0
        try:
            [(count,)] = self.run("disconnect", {"names": [application_name(role_of(worker)) for worker in workers]})
        except EngineDenied as error:
            # Some hosting providers do not let a role end its own sessions. Then the next rescue, ten seconds later, finds
            # the jobs of claims that arrive late.
            logger.warning("Could not close the connections of a dead worker: %s", str(error).strip())
            return 0
        return int(count)

    def deregister(self, workers: Collection[UUID]) -> None:
        self.run("deregister", {"workers": list(workers)})
