"""What the store says about its jobs and workers, whichever store it is: through the verbs of the default backend's engine."""

from __future__ import annotations

from typing import Any

from django.db import connections

from djqueue import stores
from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.protocol import Engine
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Job
from djqueue.jobs.states import FINAL_STATES, JobState


def engine() -> Engine:
    return stores.store().engine


def states() -> dict[str, int]:
    """How many jobs there are in each state."""
    counts = {str(state): engine().count(JobFilter(states=(state,))).count for state in JobState}
    return {state: count for state, count in counts.items() if count}


def live() -> int:
    """How many jobs have not ended. Cheap however many have."""
    return sum(sum(queue.states.values()) for queue in engine().counts())


def ended() -> int:
    return engine().count(JobFilter(states=FINAL_STATES)).count


def jobs(*states: JobState) -> list[Job]:
    """All jobs in these states, or in any, by id."""
    jobs = JobFilter(states=states or None)
    last = engine().count(jobs).last
    found = [job for id in engine().find(jobs, last=last, limit=1_000_000) if (job := engine().get(id)) is not None]
    return sorted(found, key=lambda job: job.id)


def stored(result: Any) -> Job:
    """The job of a result."""
    job = engine().get(int(result.id))
    assert job is not None, f"There is no job {result.id}."
    return job


def worker_pids() -> list[int]:
    """The process ids of the workers that live, as they announced themselves."""
    return [worker.pid for worker in sorted(engine().workers(), key=lambda worker: worker.name) if not worker.is_dead]


def close() -> None:
    """End the connections of this thread to the store."""
    if not isinstance(engine(), PostgresEngine):
        engine().close()  # type: ignore[attr-defined]
    connections.close_all()
