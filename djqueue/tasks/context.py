"""``TaskContext``: what a running task knows of its job, and what it remembers with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import sync_to_async

from djqueue import compat, stores
from djqueue.exceptions import StaleClaim
from djqueue.jobs.encoding import encode_result, is_storable
from djqueue.jobs.records import ClaimedJob
from djqueue.tasks.cancellation import Cancelled
from djqueue.tasks.results import JobView, TaskResult
from djqueue.workflows.context import Child, Results, RunningWorkflow, own_workflow
from djqueue.workflows.inputs import Upstreams

if TYPE_CHECKING:
    from djqueue.engines.protocol.flows import FlowStore

    _Context = compat.TaskContext[..., Any]
else:
    _Context = compat.TaskContext

STEPS = "steps"
"""The key of remembered steps in a job's meta."""
MAX_STEP_NAME = 200


@dataclass(frozen=True, kw_only=True)
class TaskContext(_Context):  # type: ignore[misc]  # the stubs miss that the base is frozen
    """The first argument of a task with ``takes_context=True``."""

    cancelled: Cancelled = field(default_factory=Cancelled, compare=False)
    """Event-like: set when the task is asked to stop because it was cancelled, timed out, or its worker has to stop."""
    deadline: datetime | None = field(default=None, compare=False)
    """When the task's timeout ends this attempt. None: the task has no timeout."""
    claimed: ClaimedJob | None = field(default=None, compare=False, repr=False)
    """The job as its worker fetched it."""

    @property
    def job(self) -> JobView:
        result = self.task_result
        assert isinstance(result, TaskResult)
        return result.job

    @property
    def attempt(self) -> int:
        return self.job.attempt

    # Workflows

    @cached_property
    def results(self) -> Results:
        """The results of the jobs that this one waited for, by their names in the workflow. Read from the store on first use."""
        return Results(self._upstreams)

    @cached_property
    def children(self) -> list[Child]:
        """The jobs and groups that this job waited for, completed or not."""
        return [Child.of(each) for each in self._upstreams.all]

    @cached_property
    def workflow(self) -> RunningWorkflow | None:
        """The workflow or batch of this job; in a callback of a batch, that batch. None: the job has none."""
        flow_id = None if self.claimed is None else self.claimed.flow_id
        return own_workflow(self._engine, self.task_result.backend, flow_id, self._upstreams)

    async def aresults(self) -> dict[str, Any]:
        """Return ``results`` as a dict, read in a thread."""
        return await sync_to_async(lambda: dict(self.results), thread_sensitive=True)()

    async def aworkflow(self) -> RunningWorkflow | None:
        """Return ``workflow``, read in a thread."""
        return await sync_to_async(lambda: self.workflow, thread_sensitive=True)()

    # Steps

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once per job, not once per attempt: what it returns is stored, and a later attempt gets it from there.

        The value is encoded and limited as a result is. It is stored right after the call, in the caller's transaction if there
        is one and the store is in the same database: then the step's writes and its memory commit together. If the function
        raises, nothing is stored. Raise ``StaleClaim`` if another worker has the job by now.
        """
        self._check_step(name)
        if name in (steps := self._steps):
            return steps[name]
        return self._remember(name, function(*args, **kwargs))

    async def astep(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See ``step``. ``function`` may be async; a sync one is called in the thread of the task's sync code."""
        self._check_step(name)
        if name in (steps := self._steps):
            return steps[name]
        if iscoroutinefunction(function):
            value = await function(*args, **kwargs)
        else:
            value = await sync_to_async(function, thread_sensitive=True)(*args, **kwargs)
        return await sync_to_async(self._remember, thread_sensitive=True)(name, value)

    def _check_step(self, name: str) -> None:
        given: object = name
        if not isinstance(given, str) or not 0 < len(name) <= MAX_STEP_NAME or not is_storable(name):
            raise ValueError(f"Invalid name of a step {name!r:.300}: use 1–{MAX_STEP_NAME} characters.")
        if self.claimed is None or self.claimed.is_taken:
            raise RuntimeError(
                "Steps need a job that is in the store while it runs. Jobs of queues that deliver at most once are not."
            )

    @cached_property
    def _steps(self) -> dict[str, Any]:
        # As of the claim. What this attempt stores is not added: its transaction may be rolled back.
        steps = self.job.meta.get(STEPS)
        return steps if isinstance(steps, dict) else {}

    def _remember(self, name: str, value: Any) -> Any:
        assert self.claimed is not None
        text = encode_result(value, stores.store(self.task_result.backend).settings.max_result_bytes)
        if not self._engine.step_here(self.claimed.id, self.claimed.claim, name, text):
            raise StaleClaim(
                f"Job {self.claimed.id} was given to another worker, or has ended, while step {name!r} ran here."
            )
        return json.loads(text)

    @property
    def _engine(self) -> FlowStore:
        return cast("FlowStore", stores.store(self.task_result.backend).engine)

    @cached_property
    def _upstreams(self) -> Upstreams:
        return Upstreams(self._engine, self.job.id)
