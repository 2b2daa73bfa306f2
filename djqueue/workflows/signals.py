"""Wait for a signal, and send one.

A wait is a job of its own, scheduled for its timeout. The signal completes it, with what it brings as the result; if its function
is called, no signal arrived in time. So results, cancellation and early signals are those of any other job.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from djqueue.exceptions import Discard
from djqueue.jobs.encoding import MAX_ARGS_BYTES, encode_result
from djqueue.jobs.flows import SIGNAL_TASK
from djqueue.tasks.task import KNOWN, Task
from djqueue.workflows.canvas import Signature

if TYPE_CHECKING:
    from djqueue.engines.protocol.flows import FlowStore

_PAGE = 1000


def wait(name: str) -> None:
    """Run at the timeout of a wait."""
    raise Discard(f"No signal {name!r} arrived in time.")


def signature(alias: str, queue: str, name: str, timeout: timedelta) -> Signature:
    """Return the job that waits for a signal, on a queue of the workflow."""
    return Signature(replace(KNOWN[SIGNAL_TASK], backend=alias, queue_name=queue, run_in=timeout), (name,))


def send(engine: FlowStore, flow_id: int, name: str, payload: Any, *, by: str = "") -> bool:
    """Complete the wait of this name; return False if the workflow has none, or it has ended already."""
    text = encode_result(payload, MAX_ARGS_BYTES)
    id = find(engine, flow_id, name)
    return id is not None and engine.signal(id, text, by=by)


def find(engine: FlowStore, flow_id: int, name: str) -> int | None:
    """Return the id of the job with this name in a workflow."""
    after = 0
    while page := engine.flow_jobs(flow_id, after=after, limit=_PAGE):
        for job in page:
            if job.name == name:
                return job.id
        after = page[-1].id
    return None


def _task() -> Task:
    # Not Task(…): it would be checked against the backend "default", which the project may not have.
    task: Task = object.__new__(Task)
    values = {"func": wait, "priority": 0, "backend": "default", "queue_name": "default", "max_attempts": 1}
    values |= {"run_after": None, "takes_context": False}
    for each in fields(Task):
        default = None if each.default is MISSING else each.default
        object.__setattr__(task, each.name, values.get(each.name, default))
    return task


# Workers find it by its name.
KNOWN.setdefault(SIGNAL_TASK, _task())
