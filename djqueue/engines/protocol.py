"""The seam between djqueue and a store.

Every verb that needs the time takes ``now=None``; None is the store's own clock, and tests pass a time instead of
sleeping. Verbs are safe to call from many processes at once. A worker's verb that cannot reach the store raises
``EngineUnavailable``; one whose values the store refuses raises ``EngineRefused`` and has done nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from djqueue.engines.cron import CronEngine
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.health import Health, Inspection
from djqueue.jobs.records import (
    LIVE_ONLY,
    Ack,
    CancelRequest,
    ClaimedJob,
    Controlled,
    Found,
    Heartbeat,
    InsertedJob,
    InsertedMany,
    Job,
    JobFilter,
    JobPage,
    Lease,
    ListedJob,
    Newest,
    NewJob,
    Pruned,
    PruneRule,
    QueueCounts,
    QueueRules,
    Rescued,
    Staged,
    TakenJob,
    Tally,
    UniqueRule,
    WorkerInfo,
    WorkerStatus,
)
from djqueue.jobs.states import JobState

STAGE = "!stage"
"""What the stager marks while it sleeps. No queue can have this name."""
STAGE_LOOK_SECONDS = 1.0
"""How long the stager sleeps at most. A job that is due later is found by its next look, and wakes nobody."""
SOON_SECONDS = 1.5 * STAGE_LOOK_SECONDS
"""Whoever stores a job that is due this soon wakes the stager."""


def put_back(queue: str) -> str:
    """Return the name to mark for one who wants to know that a job was put back into this queue before its turn."""
    return f"{queue}!"


class Engine(Protocol):
    """One store, as the application sees it: its verbs join the caller's transaction, if there is one.

    Those of an engine that is not transactional work at once, whatever becomes of the caller's transaction.
    """

    @property
    def is_transactional(self) -> bool:
        """Whether jobs are stored, and outcomes with ``ack_here``, in one transaction with what the application writes."""

    @property
    def store(self) -> str:
        """Name the store, without secrets. Engines of the same name have the same jobs, queues and crontab."""

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        rule: UniqueRule = LIVE_ONLY,
        relaxed: bool = False,
        now: datetime | None = None,
    ) -> list[InsertedJob]:
        """Store the jobs and answer in the same order; for a duplicate, with the job that holds its key.

        As if they were stored one after the other: the first of a key is stored, the last one's values win where the
        rule says that a duplicate changes the holder. A job that executes, or has ended, is never changed. An
        uncommitted holder of a key is waited for, and a job whose twin is rolled back is stored.

        ``relaxed``: a crash of the store may lose jobs that were stored a moment ago outside of any transaction of the
        caller. The store may ignore it.

        Available jobs wake a sleeping worker as soon as they can be seen: after the caller's commit.
        """

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded], *, now: datetime | None = None) -> InsertedMany:
        """Store jobs that differ in their arguments only and have no unique key, all or none; the fastest way in.

        ``job`` says what they share. Runs in the order of ``arguments``, and wakes as ``insert`` does.
        """

    def get(self, job_id: int) -> Job | None:
        """Return the job, live or finished; None if there is none of this id."""

    # Control. Each verb takes some jobs at once, answers for each in the same order, and does nothing to a job whose
    # state is none of ``only`` (if given), whatever it was when somebody looked at it. ``by`` and ``reason`` are kept.

    def cancel(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        """End jobs that wait as cancelled, and ask those that execute to end.

        The request stands in the row, where ``cancel_requested`` finds it, and the listeners of workers are woken with
        ``cancel:<id>``. A job with a request never runs again: an outcome or a rescue that would let it makes it
        cancelled. One that completes is completed.
        """

    def retry(
        self, ids: Collection[int], *, only: Collection[JobState] = (), now: datetime | None = None
    ) -> list[Controlled]:
        """Make jobs available that are finished or wait for a time.

        Attempts go on counting, with room for one more. A job whose unique key a live job holds stays finished.
        """

    def discard(
        self,
        ids: Collection[int],
        *,
        by: str = "",
        reason: str = "",
        only: Collection[JobState] = (),
        now: datetime | None = None,
    ) -> list[Controlled]:
        """End jobs that wait as discarded."""

    def delete(self, ids: Collection[int], *, only: Collection[JobState] = ()) -> list[Controlled]:
        """Delete jobs that wait or are finished."""

    def find(
        self, jobs: JobFilter, *, after: int = 0, last: int, limit: int = 1000, now: datetime | None = None
    ) -> list[int]:
        """Return the next ids, in their order, above ``after`` and up to ``last``, which ``count`` tells."""

    def count(self, jobs: JobFilter, *, limit: int = 1_000_000, now: datetime | None = None) -> Found:
        """Count jobs, up to a limit."""

    def newest(
        self, jobs: JobFilter, *, before: int | None = None, limit: int = 100, now: datetime | None = None
    ) -> Newest:
        """Return the jobs of the highest ids, highest first, below ``before`` if given.

        Somebody waits for the answer: a search that finds little may stop before it has looked at everything; ``before``
        of the answer says where to look on.
        """

    def get_many(self, ids: Collection[int]) -> list[ListedJob]:
        """Return the jobs with these ids that exist, live or finished, in ascending order of their ids."""

    def page(self, jobs: JobFilter, *, after: str = "", before: str = "", limit: int = 100) -> JobPage:
        """Return a page of a list of jobs, newest first: the one after a position, before a position, or the first.

        ``jobs`` names live states only or final states only. The store decides the order: live jobs are listed as they were
        enqueued, finished jobs as they finished where that is indexed. A user waits for this: a search that finds little is
        stopped and says so. ``InvalidPosition``: the position is not one that an earlier page returned.
        """

    def tally(self, jobs: JobFilter) -> Tally | None:
        """Count the jobs of a list as far as that is quick; None if the store cannot count such jobs quickly."""

    def count_states(self, jobs: JobFilter, *, limit: timedelta) -> dict[str, int] | None:
        """Count the jobs of a list by state; None if that takes longer than ``limit``."""

    def quick_counts(self, *, limit: timedelta) -> list[QueueCounts] | None:
        """Count live jobs by queue and state; None if that takes longer than ``limit``."""

    def queue_names(self) -> list[str]:
        """Return the names of queues with jobs to run, as far as they are quickly known."""

    def now(self) -> datetime:
        """Return the time by the store's clock."""

    def pause(self, queue: str, *, by: str = "", reason: str = "", now: datetime | None = None) -> bool:
        """Let nothing of a queue be fetched any more; return False if it is paused already.

        What executes goes on.
        """

    def resume(self, queue: str) -> bool:
        """Let a paused queue go on; return False if it is not paused."""

    def queues(self) -> list[QueueRules]:
        """Return the queues about which somebody decided something."""

    def workers(self) -> list[WorkerStatus]:
        """Return the workers that the store knows."""

    def transaction(self) -> AbstractContextManager[str]:
        """Open a transaction in which application writes and ``ack_here`` commit together; yield its database's alias."""

    def ack_here(self, ack: Ack) -> bool:
        """Store the outcome of a finished job in the caller's transaction; return whether the claim still holds."""

    def counts(self) -> list[QueueCounts]:
        """Count live jobs by queue and state."""

    @property
    def cron(self) -> CronEngine:
        """The crontab; its verbs join the caller's transaction, if there is one."""

    def open_cron(self) -> CronEngine:
        """Open the crontab for a scheduler: on a connection of its own."""

    def health(self) -> Health:
        """Look at everything that tells whether jobs flow. Slow reads are cut off, and missing then."""

    def open_worker(self) -> WorkerEngine:
        """Open what one thread of a worker or supervisor needs: a connection of its own."""

    def open_maintenance(self) -> WorkerEngine:
        """Open what one loop of maintenance needs: as ``open_worker``, but no verb waits for a lock that others hold.

        Rows that are locked are passed over; where that cannot be, the verb raises ``EngineBusy``.
        """

    def open_listener(self) -> Listener:
        """Open a listener; it belongs to the one thread that waits on it."""


class WorkerEngine(AbstractContextManager["WorkerEngine"], Protocol):
    """The verbs of a worker and of maintenance, on a connection of their own that reconnects when it must."""

    def fetch(
        self, queue: str, limit: int, worker: UUID, *, from_start: bool = False, now: datetime | None = None
    ) -> list[ClaimedJob]:
        """Claim up to ``limit`` available jobs in run order, counting the attempt and raising the claim.

        Nothing for a worker that is not registered or is dead, and nothing of a paused queue. Fewer than ``limit`` does
        not mean that there are no more. An engine may take a shortcut for a while, and pass over jobs that were put back;
        ``skipping`` tells, and ``from_start`` forbids it. Nothing at all is only said after a search from the start.
        """

    def ready(self, queues: Collection[str]) -> set[str]:
        """Return those of these queues that have something to fetch; a paused queue has nothing.

        Says so of jobs too that a fetch would pass over, because another transaction has locked them.
        Costs about as much as one fetch, however many queues there are; where fetches take a shortcut, as one without it.
        """

    @property
    def skipping(self) -> Collection[str]:
        """The queues in which fetches take a shortcut. Whoever puts a job back there wakes ``put_back(queue)``."""

    def take(self, queue: str, limit: int, worker: UUID, *, now: datetime | None = None) -> list[TakenJob]:
        """Fetch jobs that run at most once: the store forgets them, and ``ack`` writes their history.

        No claim to fence, nothing to rescue. An ack of such a job has it in ``taken`` and is always accepted.
        """

    def ack(self, acks: Sequence[Ack], *, now: datetime | None = None) -> set[int]:
        """Store outcomes; return the ids that were accepted. A stale claim changes nothing.

        A retryable or scheduled job without a delay is available at once. The follow-up of a job that ended begins now,
        or when the stager comes by. A job that somebody wants cancelled is cancelled instead of put back.
        ``EngineRefused``: one of the outcomes cannot be stored, and none of the batch was.
        """

    def cancel_requested(self, ids: Collection[int]) -> list[CancelRequest]:
        """Say which of these jobs, which the asking worker executes, somebody wants cancelled."""

    def prune_keys(self, limit: int = 10_000, *, now: datetime | None = None) -> int:
        """Remove unique keys that nobody holds any more, up to ``limit`` of each kind; return how many went."""

    def stage(self, limit: int = 5000, *, from_start: bool = False, now: datetime | None = None) -> Staged:
        """Make due jobs available, and follow-ups whose predecessor has ended.

        An engine may take a shortcut for a while and find jobs late that committed late; ``from_start`` forbids it.
        """

    def wake(self, queues: Collection[str]) -> None:
        """Wake the workers that sleep on these queues."""

    def register(self, workers: Sequence[WorkerInfo]) -> None:
        """Announce workers; committed before their first fetch. Idempotent, and no way back for the dead."""

    def deregister(self, workers: Collection[UUID]) -> None:
        """Forget workers that left nothing behind."""

    def bury(self, workers: Mapping[UUID, int | None]) -> set[UUID]:
        """Mark workers as dead for ever: their beats are refused and they may not fetch.

        ``workers``: the beat with which each was last seen (``Heartbeat.beat``), or None to bury it whatever its beat is. A worker that
        has beaten since is spared, in the same step, so that no beat is answered as good and its worker buried all the same.
        Return the workers that were spared.
        """

    def disconnect(self, workers: Collection[UUID]) -> int:
        """End what dead workers still have under way in the store, where that can be told; return how many connections.

        A claim that was sent before the death could commit after the rescue otherwise.
        """

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        """Raise the beat of living workers and return the beats of all known workers.

        A worker that is missing from the answer, or dead in it, is dead for ever.
        """

    def note_begun(self, claims: Mapping[int, int]) -> set[int]:
        """Note that the functions of these claims (id → claim) have been called, for ``rescue``.

        Return the ids that were noted: those that still execute under this claim, and that nobody holds at this moment.
        """

    def rescue(
        self,
        workers: Collection[UUID],
        *,
        ran: Mapping[int, int] | None = None,
        kept: Mapping[int, int] | None = None,
        as_noted: bool = False,
        reason: str = "",
        limit: int = 5000,
        now: datetime | None = None,
    ) -> Rescued:
        """Take jobs back from dead workers.

        ``ran`` (id → claim) is what really ran and so spends its attempt; None: not known, all of it.
        ``as_noted``: what ran is what ``note_begun`` was told of. Of the others nobody knows: they go back unspent, and with
        ``"lost"`` in their meta, whose start a worker has noted before it calls them.
        ``kept`` (id → claim) is left alone: a living worker takes back what it has claimed and does not know of.
        ``reason`` is recorded with the spent attempt. A job that somebody wants cancelled is cancelled.
        """

    def rescue_ownerless(self, *, limit: int = 5000, now: datetime | None = None) -> Rescued:
        """Take jobs back whose claimer has no worker row."""

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
        """Look at the next ``limit`` finished jobs, oldest first, and delete those that their rule lets go.

        ``place`` is what the step before returned; None begins a pass. A job without a rule stays, and so does a job that
        somebody else has locked. ``queue``: leave those of all other queues.
        """

    def elect(
        self, holder: UUID, ttl_seconds: float, *, loops: Mapping[str, float] | None = None, now: datetime | None = None
    ) -> Lease:
        """Take or renew the lead. ``loops``: seconds since each of the leader's loops did its work, for who looks on."""

    def resign(self, holder: UUID) -> None:
        """Give the lead up, so that another takes it at once."""

    def inspect(self) -> Inspection:
        """Look at the server: what it is, why no worker may run on it, and what is unwise about it."""

    def close(self) -> None:
        """Close the connection. Idempotent."""


class Listener(AbstractContextManager["Listener"], Protocol):
    """Waiting for work without polling.

    ``mark`` before the last look and ``wait`` after it: whoever makes a job available after that look sees the mark
    and wakes the sleeper. ``mark`` comes before each ``wait``, and costs nothing where a mark stands: until it is given
    up, or, in some stores, until it is called. Where the store cannot wake anybody (a pooler in between), ``mark`` does
    nothing and ``wait`` returns at its timeout.
    """

    def mark(self, queues: Collection[str]) -> bool:
        """Say that somebody sleeps on these queues, whom a job must wake.

        Return whether that was said before, and for all of them: then nothing can have come since the look before this.
        Otherwise another look must follow. One mark for all sleepers of a queue is enough.
        """

    def unmark(self, queues: Collection[str] | None = None) -> None:
        """Say that nobody sleeps on these queues here any more; None: on none. Cheap when they are not marked.

        Other sleepers of a queue that we had marked are woken, so that one of them marks it.
        """

    def wait(self, timeout: float) -> set[str]:
        """Sleep until one of the queues is woken, ``interrupt`` is called or ``timeout`` seconds passed.

        Return the payloads of the wake-ups, which may be empty. What was marked when the marks were lost is among them.
        """

    def interrupt(self) -> None:
        """End the current or next ``wait``. The only method that other threads and signal handlers may call."""

    def close(self) -> None:
        """Close the connection. Idempotent."""
