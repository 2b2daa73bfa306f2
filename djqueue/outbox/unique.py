"""Find duplicates in a transaction that the store is not part of.

Which job holds a unique key is decided when the job goes into the store, because only then does it exist. ``enqueue`` reads
the store too, so for jobs that are already there it behaves as on PostgreSQL: it returns the holder of the key, or raises
``DuplicateJob``, and stores nothing for the duplicate. It cannot see a job that takes the key between then and the commit,
or that waits in another transaction or in the same one. Then no job is stored under the reserved id, and an event reports
that, as a warning if the task says ``on_conflict="raise"``. Refusing such a task inside of
transactions would be stricter, but it would break each request under ATOMIC_REQUESTS and each TestCase for the sake of a race.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import InsertedJob, NewJob, UniqueRule
from djqueue.jobs.states import JobState
from djqueue.outbox.id_pool import IdPool
from djqueue.outbox.pending_insert import PendingEngine


def holders_now(
    engine: PendingEngine, stock: IdPool | None, jobs: Sequence[NewJob], rule: UniqueRule
) -> dict[str, InsertedJob]:
    """Return the jobs that currently hold the unique keys of these jobs in the store, by key."""
    # The holder for a follow-up is looked up when the job reaches the store. A store that recently failed to answer
    # is not contacted if the answer is not needed.
    if rule.follow_up or (stock is not None and stock.is_away and not rule.is_exclusive):
        return {}
    try:
        return engine.holders([str(job.unique_key) for job in jobs], rule=rule)
    except EngineUnavailable:
        if stock is None or rule.is_exclusive:
            raise
        stock.note_absence()
        return {}


def refused(jobs: Sequence[NewJob], holders: Mapping[str, InsertedJob]) -> list[InsertedJob]:
    """Return the responses for jobs of which none is stored because some are duplicates. The caller raises for the first one."""
    nothing = InsertedJob(0, JobState.AVAILABLE, datetime.now(UTC))
    return [holders.get(str(job.unique_key), nothing) for job in jobs]
