"""What a running job sees of its workflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from djqueue.exceptions import InvalidWorkflow
from djqueue.jobs.flows import FlowKind, Neighbour
from djqueue.workflows.canvas import Canvas, backend_of
from djqueue.workflows.handle import EnqueuedWorkflow
from djqueue.workflows.inputs import Upstreams, result_of
from djqueue.workflows.workflow import Workflow

if TYPE_CHECKING:
    from djqueue.engines.protocol.flows import FlowStore


class Child(NamedTuple):
    """A job or a group that a job waited for."""

    id: str
    name: str
    is_group: bool
    state: str
    """Of a job, its state or ``"deleted"``; of a group ``"unfinished"``, ``"completed"`` or ``"failed"``."""
    result: Any
    """None, if it did not complete, or is a group: ``context.results`` has a group's."""

    @classmethod
    def of(cls, upstream: Neighbour) -> Child:
        result = None if upstream.is_flow else result_of(upstream)
        return cls(str(upstream.id), upstream.name, upstream.is_flow, str(upstream.state), result)


class Results(Mapping[str, Any]):
    """Results by the names of jobs, and of large groups, whose value is a list. None for a job that did not complete."""

    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams

    def __getitem__(self, name: str) -> Any:
        if (found := self._upstreams.by_name.get(name)) is not None:
            return result_of(found)
        if name in self._parts():
            return list(self._upstreams.of_part(name, drop=False))
        raise KeyError(
            f"{name!r} is not among the jobs that this job waited for: {', '.join(self) or 'none'}. Add it to deps."
        )

    def __iter__(self) -> Iterator[str]:
        yield from self._upstreams.by_name
        yield from self._parts()

    def __len__(self) -> int:
        return len(self._upstreams.by_name) + len(self._parts())

    def _parts(self) -> list[str]:
        return [each.name for each in self._upstreams.all if each.is_flow and each.name]


@dataclass(frozen=True, slots=True)
class RunningWorkflow(EnqueuedWorkflow):
    """The workflow of a running job."""

    own_id: int = 0
    """The flow that counts the job: the workflow or a part of it."""

    def add(self, work: Canvas | Workflow) -> EnqueuedWorkflow:
        """Store more jobs as a part of this workflow, which does not finish before they have ended.

        What waits for a part of the workflow that this job belongs to, such as its group, waits for them, too.
        """
        if not self.own_id:
            raise InvalidWorkflow(f"Workflow {self.id} does not count this job, so the job cannot add to it.")
        found: EnqueuedWorkflow = backend_of(self.backend, "Workflows").enqueue_workflow(work, whole_id=self.own_id)
        return found


def own_workflow(engine: FlowStore, alias: str, flow_id: int | None, upstreams: Upstreams) -> RunningWorkflow | None:
    """Return the whole that counts a job, or, for a job that is not counted, the batch that it waited for."""
    found = flow_id
    if found is None:
        found = next((each.id for each in upstreams.all if each.is_flow), None)
    while found is not None and (flow := engine.flow(found)) is not None:
        if flow.kind is not FlowKind.PART or flow.whole_id is None:
            return RunningWorkflow(str(flow.id), flow.name, alias, own_id=flow_id or 0)
        found = flow.whole_id
    return None
