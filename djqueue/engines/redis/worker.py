"""The verbs of workers and maintenance on Redis: one Lua file each, on a connection of their own."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from djqueue.engines.redis.at_most_once import taken_bytes, taken_columns
from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import LONGEST_DELAY_SECONDS, NUMBERS, clock, read_claimed, read_taken
from djqueue.engines.redis.listener import RedisListener
from djqueue.engines.redis.parts import LIMIT, parts
from djqueue.engines.redis.pruning import Pruning
from djqueue.engines.redis.server import inspect
from djqueue.exceptions import EngineDenied, EngineRefused, EngineUnavailable
from djqueue.jobs.encoding import storable
from djqueue.jobs.health import Inspection
from djqueue.jobs.records import (
    Ack,
    CancelRequest,
    ClaimedJob,
    Heartbeat,
    Lease,
    Rescued,
    Staged,
    TakenJob,
    WorkerInfo,
)
from djqueue.jobs.states import FINAL_STATES

logger = logging.getLogger("djqueue.engine")

_STAGED_AT_ONCE = 500


class RedisWorkerEngine(Pruning):
    """The verbs of workers and maintenance on one connection of their own."""

    is_partial = False
    """Fetches skip nothing: jobs that have been claimed are not in the way of those that wait."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def open_listener(self) -> RedisListener:
        return RedisListener(self._client.nodes, self._client.prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._client.close()

    def inspect(self) -> Inspection:
        """Look at the server: what it is, why no worker may run on it, and what is unwise about it."""
        return inspect(self._client)

    def fetch(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[ClaimedJob]:
        """Claim up to ``limit`` available jobs in run order, counting the attempt and raising the claim."""
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
        """Read jobs one by one, and park those that cannot be read: whatever somebody wrote there, it is nobody else's fault."""
        claimed = []
        bad = []
        for job in found:
            try:
                claimed.append(read_claimed(at, *job))
            except Exception as error:
                logger.error("Job %s cannot be read and is put aside: %s", job[0].decode(), error)
                bad.append(job[0])
        self._client.run("park", clock(now), *bad)
        return claimed

    def ready(self, queues: Collection[str], *, is_hint: bool = False) -> set[str]:
        """Return those of these queues that have something to fetch."""
        names = list(queues)
        found: set[str] = set()
        for first in range(0, len(names), LIMIT):
            part = names[first : first + LIMIT]
            found.update(part[place - 1] for place in self._client.run("ready", *part))
        return found

    def take(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[TakenJob]:
        """Fetch jobs that run at most once: they are nowhere until ``ack`` writes their history."""
        at, found = self._pop("take", queue, min(limit, LIMIT), worker, now)
        return [read_taken(at, worker, *job) for job in found]

    def _pop(self, verb: str, queue: str, limit: int, worker: UUID, now: datetime | None) -> tuple[int, list[Any]]:
        if limit <= 0:
            return 0, []
        # The name of a connection that is still to be opened; see ``disconnect``.
        self._client.name = _name(worker)
        answer = self._client.run(verb, queue, limit, str(worker), clock(now))
        if not answer:
            return 0, []
        at, *found = answer
        return at, [job for job in zip(*found, strict=True) if job[1] is not None]

    def ack(self, acks: Sequence[Ack], *, now: datetime | None = None) -> set[int]:
        """Store outcomes; return the ids that were accepted. A stale claim changes nothing."""
        pack = self._client.pack
        taken = [ack for ack in acks if ack.taken is not None]
        if taken:
            acks = [ack for ack in acks if ack.taken is None]
        rest = [ack for ack in acks if ack.error is not None or ack.state not in FINAL_STATES]
        plain = [ack for ack in acks if ack.error is None and ack.state in FINAL_STATES] if rest else acks
        # All of it before the first script: should one of them be refused here, nothing is stored.
        for_record = [pack(taken_columns(part, pack)) for _, part in parts(taken, taken_bytes)]
        for_plain = [(part, pack(_plain_columns(part))) for _, part in parts(plain, _outcome_bytes)]
        for_rest = [(part, pack(_columns(part))) for _, part in parts(rest, _outcome_bytes)]
        accepted: set[int] = set()
        try:
            for part, packed in for_plain:
                refused, others = self._client.run("ack_plain", clock(now), packed)
                accepted.update(_accepted(part, {*refused, *others}))
                if others:
                    more = [part[place - 1] for place in others]
                    for_rest.append((more, pack(_columns(more))))
            for part, packed in for_rest:
                accepted.update(_accepted(part, self._client.run("ack", clock(now), packed)))
            # All or none, and after the others: whoever asks may not put a job back twice, and has to know what a failure means.
            if for_record:
                self._client.run_all("record", [(clock(now), packed) for packed in for_record])
        except EngineUnavailable as error:
            error.accepted = frozenset(accepted)
            raise
        return accepted.union(ack.id for ack in taken)

    def cancel_requested(self, ids: Collection[int]) -> list[CancelRequest]:
        """Say which of these jobs, which the asking worker executes, somebody wants cancelled."""
        requests = []
        texts = list(map(str, ids))
        for first in range(0, len(texts), LIMIT):
            rows = self._client.run("cancel_requested", self._client.pack(texts[first : first + LIMIT]))
            requests += [CancelRequest(int(id), claim, by.decode(), reason.decode()) for id, claim, by, reason in rows]
        return requests

    def stage(self, limit: int = 5000, *, now: datetime | None = None) -> Staged:
        """Make due jobs available and wake whoever sleeps on their queues."""
        count, next_in = 0, None
        queues: set[str] = set()
        while (wanted := min(limit - count, _STAGED_AT_ONCE)) > 0:
            staged, next_in, names = self._client.run("stage", wanted, clock(now))
            count += staged
            queues.update(name.decode() for name in names)
            if staged < wanted:
                break
        return Staged(count, sorted(queues), None if next_in is None else next_in / 1e6)

    def wake(self, queues: Collection[str]) -> None:
        """Wake the workers that sleep on these queues."""
        if queues:
            self._client.run("wake", *sorted(queues))

    def register(self, workers: Sequence[WorkerInfo]) -> None:
        """Announce workers before their first fetch."""
        for worker in workers:
            info = (worker.name, worker.hostname, worker.pid, dict(worker.queues), worker.concurrency)
            self._client.run("register", str(worker.id), self._client.pack(info))

    def deregister(self, workers: Collection[UUID]) -> None:
        """Forget workers that left nothing behind."""
        if workers:
            self._client.run("deregister", *map(str, workers))

    def bury(self, workers: Mapping[UUID, int | None]) -> set[UUID]:
        """Mark workers as dead for ever, but those that have beaten since; return these."""
        if not workers:
            return set()
        pairs = [text for worker, beat in workers.items() for text in (str(worker), "" if beat is None else str(beat))]
        return {UUID(worker.decode()) for worker in self._client.run("bury", *pairs)}

    def disconnect(self, workers: Collection[UUID]) -> int:
        """End the connections on which these workers fetched; what arrived on them and was not read is dropped."""
        names = {_name(worker) for worker in workers}
        count = 0
        try:
            clients: str = self._client.command("CLIENT", "LIST").decode() if names else ""
            for line in clients.splitlines():
                about = dict(part.partition("=")[::2] for part in line.split(" "))
                if about.get("name") in names:
                    count += self._client.command("CLIENT", "KILL", "ID", about["id"])
        except (EngineRefused, EngineDenied) as error:
            # Not every user may do this. The rescue that follows ten seconds later finds what comes late.
            logger.warning("The connections of a dead worker could not be ended: %s", error)
        return count

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        """Raise the beat of living workers and return the beats of all known workers."""
        living, leaving = (self._client.pack(list(map(str, ids))) for ids in (workers, draining))
        rows = iter(self._client.run("beat", living, leaving))
        return [
            Heartbeat(UUID(worker.decode()), beat, bool(is_dead))
            for worker, beat, is_dead in zip(rows, rows, rows, strict=True)
        ]

    def note_begun(self, claims: Mapping[int, int]) -> set[int]:
        """Note that the functions of these claims have been called; return the ids of those that still execute."""
        flat = [value for id, claim in claims.items() for value in (str(id), claim)]
        noted: set[int] = set()
        for first in range(0, len(flat), 2 * LIMIT):
            noted.update(map(int, self._client.run("note_begun", self._client.pack(flat[first : first + 2 * LIMIT]))))
        return noted

    def rescue(
        self,
        workers: Collection[UUID],
        *,
        ran: Mapping[int, int] | None = None,
        kept: Mapping[int, int] | None = None,
        as_noted: bool = False,
        reason: str = "The worker was lost.",
        limit: int = 5000,
        now: datetime | None = None,
    ) -> Rescued:
        """Take jobs back from dead workers, and wake living ones for them."""
        if not workers:
            return Rescued()
        return self._rescue(self._client.pack(list(map(str, workers))), ran, kept, as_noted, reason, limit, now)

    def reclaim(self, worker: UUID, kept: Mapping[int, int], *, now: datetime | None = None) -> Rescued:
        """Put back what the store holds for a living worker but the worker does not know of; no attempt is spent."""
        return self.rescue([worker], ran={}, kept=kept, now=now)

    def rescue_ownerless(self, *, limit: int = 5000, now: datetime | None = None) -> Rescued:
        """Take jobs back whose claimer is not known."""
        return self._rescue(b"", None, None, True, "The worker was lost, and its record with it.", limit, now)

    def _rescue(
        self,
        workers: bytes,
        ran: Mapping[int, int] | None,
        kept: Mapping[int, int] | None,
        as_noted: bool,
        reason: str,
        limit: int,
        now: datetime | None,
    ) -> Rescued:
        knowledge = b"" if ran is None else self._client.pack({str(id): claim for id, claim in ran.items()})
        excepted = self._client.pack({str(id): claim for id, claim in (kept or {}).items()})
        # It may quote what the worker wrote last. No byte of it may keep its jobs from being rescued.
        words = storable(reason)
        cursor, total = b"0", [0, 0, 0]
        queues: set[str] = set()
        while True:
            left = limit - sum(total)
            cursor, *counts, names = self._client.run(
                "rescue", cursor, workers, knowledge, excepted, words, left, clock(now), int(as_noted)
            )
            total = [one + more for one, more in zip(total, counts, strict=True)]
            queues.update(name.decode() for name in names)
            if cursor == b"0" or sum(total) >= limit:
                break
        requeued, discarded, cancelled = total
        return Rescued(requeued, discarded, sorted(queues), cancelled) if sum(total) else Rescued()

    def elect(
        self, holder: UUID, ttl_seconds: float, *, loops: Mapping[str, float] | None = None, now: datetime | None = None
    ) -> Lease:
        """Take or renew the lead."""
        ages = self._client.pack({name: int(seconds * 1e6) for name, seconds in (loops or {}).items()})
        term = self._client.run("elect", str(holder), int(ttl_seconds * 1e6), ages, clock(now))
        return Lease(False, 0) if term is None else Lease(True, term)

    def resign(self, holder: UUID) -> None:
        """Give the lead up, so that another takes it at once."""
        self._client.run("resign", str(holder))


def _outcome_bytes(acks: Sequence[Ack]) -> int:
    return sum([len(ack.result or "") + len(ack.error or "") for ack in acks])


def _accepted(acks: Sequence[Ack], others: Collection[int]) -> Iterator[int]:
    """Return the ids of outcomes, without those at these places, from 1."""
    return (ack.id for place, ack in enumerate(acks, 1) if place not in others) if others else (ack.id for ack in acks)


def _plain_columns(acks: Sequence[Ack]) -> list[Any]:
    """Return outcomes as ``ack_plain.lua`` takes them; moments as microseconds back from now."""
    now = time.monotonic()
    flat: list[Any] = []
    for id, claim, state, started, finished, result, _, _, is_spent, _, _ in acks:
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


def _columns(acks: Sequence[Ack]) -> list[Any]:
    """Return outcomes as ``ack.lua`` takes them; moments as microseconds back from now."""
    now = time.monotonic()
    flat: list[Any] = []
    for id, claim, state, started, finished, result, error, delay, is_spent, note, _ in acks:
        flat += (
            str(id),
            claim,
            NUMBERS[state],
            started is not None and int((now - started) * 1e6),
            max(0, int((now - finished) * 1e6)) if finished else 0,
            is_spent,
            result is not None and result != "null" and result,
            error is not None and error,
            int(min(max(delay, 0.0), LONGEST_DELAY_SECONDS) * 1e6),
            note is not None and note,
        )
    return flat


def _name(worker: UUID) -> str:
    """Return what the server calls the connection on which a worker fetches."""
    return f"djqueue:{worker}"
