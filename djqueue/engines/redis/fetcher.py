"""Claim jobs and store outcomes on Redis: one Lua file a verb, on a connection of its own."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from djqueue.engines.redis.at_most_once import taken_bytes, taken_columns
from djqueue.engines.redis.codec import clock, read_claimed, read_taken
from djqueue.engines.redis.outcomes import columns, outcome_bytes, plain_columns
from djqueue.engines.redis.parts import LIMIT, parts
from djqueue.engines.redis.rescue import rescue
from djqueue.engines.redis.session import Session, name_of
from djqueue.engines.redis.settling import settle
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.control import CancelRequest
from djqueue.jobs.records import Ack, Acked, ClaimedJob, Rescued, TakenJob
from djqueue.jobs.states import FINAL_STATES

logger = logging.getLogger("djqueue.engine")


class RedisFetcher(Session):
    is_partial = False
    """Fetches never skip jobs, because claimed jobs are not kept among the waiting ones."""

    def fetch(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[ClaimedJob]:
        claimed: list[ClaimedJob] = []
        while (wanted := min(limit - len(claimed), LIMIT)) > 0:
            at, found = self._pop("fetch", queue, wanted, worker, now)
            try:
                claimed += [read_claimed(at, *job) for job in found]
            except Exception:
                claimed += self._readable(at, found, now)
            if len(found) < wanted:
                break
        return claimed

    def _readable(self, at: int, found: Sequence[Any], now: datetime | None) -> list[ClaimedJob]:
        """Decode jobs one by one, and park those that cannot be decoded, so that one bad job does not stop the others."""
        claimed = []
        bad = []
        for job in found:
            try:
                claimed.append(read_claimed(at, *job))
            except Exception as error:
                logger.error("Parked job %s because it cannot be read: %s", job[0].decode(), error)
                bad.append(job[0])
        self._client.run("park", clock(now), *bad)
        return claimed

    def ready(self, queues: Collection[str], *, is_hint: bool = False) -> set[str]:
        names = list(queues)
        found: set[str] = set()
        for first in range(0, len(names), LIMIT):
            part = names[first : first + LIMIT]
            found.update(part[place - 1] for place in self._client.run("ready", *part))
        return found

    def take(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[TakenJob]:
        at, found = self._pop("take", queue, min(limit, LIMIT), worker, now)
        return [read_taken(at, worker, *job) for job in found]

    def _pop(self, verb: str, queue: str, limit: int, worker: UUID, now: datetime | None) -> tuple[int, list[Any]]:
        if limit <= 0:
            return 0, []
        # The name of the next connection that is opened; ``disconnect`` finds it by this name.
        self._client.name = name_of(worker)
        answer = self._client.run(verb, queue, limit, str(worker), clock(now))
        if not answer:
            return 0, []
        at, *found = answer
        return at, [job for job in zip(*found, strict=True) if job[1] is not None]

    def ack(self, acks: Sequence[Ack], *, now: datetime | None = None) -> Acked:
        pack = self._client.pack
        taken = [ack for ack in acks if ack.taken is not None]
        if taken:
            acks = [ack for ack in acks if ack.taken is None]
        flows = [ack for ack in acks if ack.flow_id is not None]
        if flows:
            acks = [ack for ack in acks if ack.flow_id is None]
        rest = [ack for ack in acks if ack.error is not None or ack.state not in FINAL_STATES]
        plain = [ack for ack in acks if ack.error is None and ack.state in FINAL_STATES] if rest else acks
        # Encode everything before the first script: if a value is refused here, nothing has been stored.
        for_record = [pack(taken_columns(part, pack)) for _, part in parts(taken, taken_bytes)]
        for_plain = [(part, pack(plain_columns(part))) for _, part in parts(plain, outcome_bytes)]
        for_rest = [(part, pack(columns(part))) for _, part in parts(rest, outcome_bytes)]
        for_flows = [(part, pack(columns(part))) for _, part in parts(flows, outcome_bytes)]
        accepted: set[int] = set()
        has_effects = False
        try:
            for part, packed in for_plain:
                refused, others = self._client.run("ack_plain", clock(now), packed)
                accepted.update(_accepted(part, {*refused, *others}))
                if others:
                    more = [part[place - 1] for place in others]
                    for_rest.append((more, pack(columns(more))))
            for part, packed in for_rest:
                refused, others = self._client.run("ack", clock(now), packed)
                accepted.update(_accepted(part, {*refused, *others}))
                if others:
                    more = [part[place - 1] for place in others]
                    for_flows.append((more, pack(columns(more))))
            for part, packed in for_flows:
                refused, is_left = self._client.run("ack_flow", clock(now), packed)
                accepted.update(_accepted(part, refused))
                has_effects = has_effects or bool(is_left)
            # All or none, and after the others: the caller must not put a taken job back twice, so a failure must be unambiguous.
            if for_record:
                self._client.run_all("record", [(clock(now), packed) for packed in for_record])
        except EngineUnavailable as error:
            error.accepted = frozenset(accepted)
            raise
        if has_effects:
            # The outcomes are stored. If this fails, the stager does it.
            with suppress(EngineUnavailable):
                settle(self._client, now)
        return Acked(accepted.union(ack.id for ack in taken))

    def reclaim(self, worker: UUID, kept: Mapping[int, int], *, now: datetime | None = None) -> Rescued:
        return rescue(self._client, [worker], ran={}, kept=kept, now=now)

    def cancel_requested(self, ids: Collection[int]) -> list[CancelRequest]:
        requests = []
        texts = list(map(str, ids))
        for first in range(0, len(texts), LIMIT):
            rows = self._client.run("cancel_requested", self._client.pack(texts[first : first + LIMIT]))
            requests += [CancelRequest(int(id), claim, by.decode(), reason.decode()) for id, claim, by, reason in rows]
        return requests


def _accepted(acks: Sequence[Ack], others: Collection[int]) -> Iterator[int]:
    """Return the ids of the outcomes, except those at these positions, counted from 1."""
    return (ack.id for place, ack in enumerate(acks, 1) if place not in others) if others else (ack.id for ack in acks)
