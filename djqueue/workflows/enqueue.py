"""Store a plan, and report its jobs as enqueued."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from djqueue import compat
from djqueue.jobs.flows import InsertedFlow
from djqueue.jobs.records import InsertedJob, NewJob
from djqueue.jobs.states import JobState
from djqueue.stores import StoreBackend
from djqueue.tasks.task import Task
from djqueue.workflows.canvas import Canvas
from djqueue.workflows.handle import EnqueuedWorkflow
from djqueue.workflows.plan import Plan, plan
from djqueue.workflows.workflow import Workflow

if TYPE_CHECKING:
    Announce = Callable[[Task, NewJob, InsertedJob], Any]


def enqueue(
    backend: StoreBackend,
    work: Canvas | Workflow,
    announce: Announce,
    *,
    whole_id: int | None = None,
) -> EnqueuedWorkflow:
    """Store a whole in the caller's transaction, if there is one. ``announce`` is called for each job, if anybody listens."""
    store = backend.store
    planned = plan(work, store.settings, backend.alias, validate=backend.validate_task, whole_id=whole_id)
    inserted = store.insert_flow(planned.flows, planned.jobs)
    handle = EnqueuedWorkflow(
        str(inserted.flow_ids[0]), planned.flows[0].name, backend.alias, was_duplicate=inserted.was_duplicate
    )
    if inserted.was_duplicate:
        return handle
    if compat.is_heard(compat.task_enqueued):
        _announce(planned, inserted, announce)
    return EnqueuedWorkflow(
        handle.id,
        handle.name,
        handle.backend,
        job_ids={name: str(inserted.job_ids[place]) for name, place in planned.names.items()},
        last_ids=[str(inserted.job_ids[place]) for place in planned.ends],
    )


def _announce(planned: Plan, inserted: InsertedFlow, announce: Announce) -> None:
    for task, (new, _, upstreams), id in zip(planned.tasks, planned.jobs, inserted.job_ids, strict=True):
        is_later = new.scheduled_at is not None or new.delay is not None
        state = JobState.SUSPENDED if upstreams else JobState.SCHEDULED if is_later else JobState.AVAILABLE
        announce(task, new, InsertedJob(id, state, inserted.inserted_at))
