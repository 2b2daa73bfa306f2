"""Duplicates inside of a transaction that the store takes no part in.

Which job holds a unique key is decided when the job goes into the store, because only then does it exist. ``enqueue`` looks
there too, so it can answer as PostgreSQL would about jobs that are there already: the holder of the key is returned, or
raised as ``DuplicateJob``, and nothing is stored for the duplicate. What it cannot see is a job that takes the key between
then and the commit, or that waits in another transaction, or in the same one. Then no job is stored under the promised id,
and an event reports that, as a warning if the task says ``on_conflict="raise"``. Refusing such a task inside of
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
    """Return the jobs that hold the keys of these, by key, as far as the store can tell now."""
    # Which job a follow-up follows, if any, is seen when it comes in. Nor is a store asked that did not answer a moment
    # ago, if the answer is not needed.
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
    """Answer for jobs of which none is stored because some are duplicates: the caller raises an error for the first of these."""
    nothing = InsertedJob(0, JobState.AVAILABLE, datetime.now(UTC))
    return [holders.get(str(job.unique_key), nothing) for job in jobs]
