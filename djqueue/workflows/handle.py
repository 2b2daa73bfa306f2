"""A stored workflow, as its enqueuer and its jobs see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import sync_to_async

from djqueue import compat, stores
from djqueue.jobs.flows import Flow
from djqueue.workflows import signals

if TYPE_CHECKING:
    from djqueue.engines.protocol.flows import FlowStore
    from djqueue.tasks.results import TaskResult


@dataclass(frozen=True, slots=True)
class EnqueuedWorkflow:
    """A workflow, chain, group or batch in the store."""

    id: str
    name: str
    backend: str
    was_duplicate: bool = False
    """Nothing was stored, because an unfinished workflow holds the unique key. This is that workflow."""
    job_ids: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Name → id of its jobs, as far as they were stored with it and have a name."""
    last_ids: Sequence[str] = field(default=(), compare=False)
    """The ids of the jobs in which a chain or a group ends."""

    @property
    def engine(self) -> FlowStore:
        return cast("FlowStore", stores.store(self.backend).engine)

    def status(self) -> Flow | None:
        """Return its counts as of now; None if it was pruned."""
        return self.engine.flow(int(self.id))

    def get_result(self, name: str | None = None) -> TaskResult:
        """Return the result of the job with this name; without a name, of the last job of a chain.

        Raise ``TaskResultDoesNotExist`` if there is no such job.
        """
        id: object = None
        if name is not None:
            id = self.job_ids.get(name) or signals.find(self.engine, int(self.id), name)
        elif self.last_ids:
            id = self.last_ids[-1]
        if id is None:
            raise compat.TaskResultDoesNotExist(f"Workflow {self.id} has no job {name!r}.")
        return cast("TaskResult", compat.task_backends[self.backend].get_result(str(id)))

    def signal(self, name: str, payload: Any = None, *, by: object = "") -> bool:
        """Complete the job that waits for this signal; return False if there is none, or it has ended. The first signal wins."""
        return signals.send(self.engine, int(self.id), name, payload, by=_name(by))

    def cancel(self, reason: str = "", *, by: object = "") -> int:
        """Cancel the jobs that have not ended; return how many were cancelled or asked to stop."""
        return self.engine.cancel_flow(int(self.id), by=_name(by), reason=reason)

    def retry(self, *, by: object = "") -> int:
        """Retry the jobs that were discarded or cancelled, and revive what they stopped; return how many."""
        return self.engine.retry_flow(int(self.id), by=_name(by))

    async def astatus(self) -> Flow | None:
        """See ``status``."""
        return await sync_to_async(self.status, thread_sensitive=True)()

    async def aget_result(self, name: str | None = None) -> TaskResult:
        """See ``get_result``."""
        return await sync_to_async(self.get_result, thread_sensitive=True)(name)

    async def asignal(self, name: str, payload: Any = None, *, by: object = "") -> bool:
        """See ``signal``."""
        return await sync_to_async(self.signal, thread_sensitive=True)(name, payload, by=by)

    async def acancel(self, reason: str = "", *, by: object = "") -> int:
        """See ``cancel``."""
        return await sync_to_async(self.cancel, thread_sensitive=True)(reason, by=by)

    async def aretry(self, *, by: object = "") -> int:
        """See ``retry``."""
        return await sync_to_async(self.retry, thread_sensitive=True)(by=by)


def _name(by: object) -> str:
    return str(by.get_username()) if hasattr(by, "get_username") else str(by)
