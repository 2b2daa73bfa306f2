"""``Workflow``: a graph of named jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from asgiref.sync import sync_to_async

from djqueue import compat
from djqueue.exceptions import InvalidWorkflow
from djqueue.jobs.durations import LONGEST, parse_duration
from djqueue.jobs.names import job_id
from djqueue.tasks.task import Task
from djqueue.workflows.canvas import Canvas, OnFailure, Signature, backend_of, check_on_failure
from djqueue.workflows.refusals import MAX_FLOW_NAME, is_text
from djqueue.workflows.result import Path, Result, replace_results

if TYPE_CHECKING:
    from djqueue.workflows.handle import EnqueuedWorkflow

    Deps = Iterable[Any] | Mapping[Any, OnFailure | None]

MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class SignalWait:
    """A job that a signal completes; see ``Workflow.wait_for_signal``."""

    timeout: timedelta


@dataclass(frozen=True, slots=True)
class Entry:
    """What ``Workflow.add`` noted."""

    work: Canvas | Workflow | SignalWait
    deps: Mapping[str | int, OnFailure | None]
    """Names, or ids of stored jobs and workflows. None: as the workflow says."""

    @property
    def names(self) -> Iterator[str]:
        """The names of the same workflow that it depends on."""
        return (each.partition(".")[0] for each in self.deps if isinstance(each, str))


class Workflow:
    """Jobs with names and the dependencies between them. Jobs that do not depend on each other run at the same time::

    workflow = Workflow("import")
    workflow.add("download", download, url)
    workflow.add("parse", parse, Result("download"))
    workflow.add("report", report.s(to="team"), deps=["parse"], on_failure="ignore")
    workflow.enqueue()
    """

    def __init__(
        self,
        name: str,
        *,
        on_failure: Literal["fail", "ignore", "drop", "cancel"] = "fail",
        unique: bool | str = False,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """``on_failure``: what a job does whose dependency does not complete, unless ``add`` says otherwise. With ``"cancel"``, the
        first job that does not complete cancels all others that have not ended.

        ``unique``: while an unfinished workflow has this name and key (True: this name), ``enqueue`` stores nothing and returns
        that one. ``meta``: values to keep with the workflow.
        """
        if not is_text(name, MAX_FLOW_NAME):
            raise InvalidWorkflow(f"Invalid name of a workflow {name!r:.300}: use 1–255 printable characters.")
        if on_failure not in ("fail", "ignore", "drop", "cancel"):
            raise InvalidWorkflow(f"Invalid on_failure {on_failure!r}: use 'fail', 'ignore', 'drop' or 'cancel'.")
        if not isinstance(unique, bool | str):
            raise InvalidWorkflow(f"Invalid unique {unique!r:.200} of a workflow: use True or a key.")
        self.name = name
        self.on_failure = on_failure
        self.unique = unique
        self.meta = dict(meta or {})
        self.entries: dict[str, Entry] = {}

    def add(
        self,
        name: str,
        work: compat.Task[..., Any] | Canvas | Workflow,
        /,
        *args: Any,
        deps: Deps = (),
        on_failure: OnFailure | None = None,
        **options: Any,
    ) -> Workflow:
        """Add a job under a name that others refer to; return the workflow.

        ``work``: a task and its positional arguments, or a signature (with keyword arguments), a chain, a group, or another
        workflow. Results travel by ``Result`` only: ``.s()`` and ``.si()`` are the same here. ``deps``: names of this workflow,
        which may be added later, ``"other.name"`` for a job of a workflow in it, and jobs that exist already (a ``TaskResult``
        or its id as an int; a string is a name); or a dict from these to their ``on_failure``. ``options``: those of ``Task.using()``.
        """
        self._check_name(name)
        check_on_failure(on_failure)
        if isinstance(work, compat.Task):
            work = Signature(Task.of(work), args)
        elif args:
            raise InvalidWorkflow(
                f"Job {name!r}: arguments can only be added to a task. Use task.s(…) with all of them."
            )
        if options:
            if not isinstance(work, Signature):
                raise InvalidWorkflow(f"Job {name!r}: options can only be given for one task. Use task.using(…).s(…).")
            try:
                work = work.using(**options)
            except TypeError as error:
                raise InvalidWorkflow(
                    f"Job {name!r}: {error} Pass keyword arguments of the task with task.s(…)."
                ) from None
        if not isinstance(work, Canvas | Workflow):
            raise InvalidWorkflow(
                f"Job {name!r}: invalid work {work!r:.200}. Use a task, a signature, a chain, a group or a workflow."
            )
        noted = self._deps(name, deps, on_failure)
        if isinstance(work, Canvas):
            for result in results_in(work):
                noted.setdefault(dependency_key(name, result.of), on_failure)
        self.entries[name] = Entry(work, noted)
        return self

    def wait_for_signal(self, name: str, *, timeout: float | str | timedelta | None = None) -> Workflow:
        """Add a job that ``signal(name, payload)`` of the stored workflow completes, with the payload as its result.

        A signal may arrive before anything waits for it; the first one wins. ``timeout`` counts from the enqueue: after it, the
        job is discarded, and dependents act as after any other failure.
        """
        self._check_name(name)
        try:
            duration = LONGEST if timeout is None else parse_duration(timeout)
        except ValueError:
            duration = timedelta()
        if duration <= timedelta():
            raise InvalidWorkflow(
                f"Job {name!r}: invalid timeout {timeout!r:.120}. Use seconds, a timedelta or a text like '2 days', more than 0."
            )
        self.entries[name] = Entry(SignalWait(duration), {})
        return self

    def enqueue(self) -> EnqueuedWorkflow:
        """Store all jobs in the caller's transaction, if there is one."""
        first = next(self.signatures(), None)
        if first is None:
            raise InvalidWorkflow(f"Workflow {self.name!r} has no task. Add one.")
        found: EnqueuedWorkflow = backend_of(first.task.backend, "Workflows").enqueue_workflow(self)
        return found

    async def aenqueue(self) -> EnqueuedWorkflow:
        """See ``enqueue``."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)()

    def signatures(self) -> Iterator[Signature]:
        """Yield all signatures, those of workflows in it included."""
        for entry in self.entries.values():
            if not isinstance(entry.work, SignalWait):
                yield from entry.work.signatures()

    def in_order(self) -> list[str]:
        """Return the names so that each follows those it depends on; raise ``InvalidWorkflow`` for a cycle or an unknown name."""
        for name, entry in self.entries.items():
            for dep in entry.names:
                if dep not in self.entries:
                    raise InvalidWorkflow(
                        f"Job {name!r} of workflow {self.name!r} depends on {dep!r}, {self._unknown(dep)}"
                    )
        try:
            return list(
                TopologicalSorter({name: list(entry.names) for name, entry in self.entries.items()}).static_order()
            )
        except CycleError as error:
            # The path goes from each job to one that depends on it.
            path = " → ".join(reversed(error.args[1]))
            raise InvalidWorkflow(f"Workflow {self.name!r} has a cycle: {path} (each depends on the next).") from None

    @property
    def unique_key(self) -> str | None:
        if not self.unique:
            return None
        text = json.dumps(["workflow", self.name, self.unique])
        return blake2b(text.encode(), digest_size=20).hexdigest()

    def __repr__(self) -> str:
        return f"<Workflow {self.name!r}: {', '.join(self.entries) or 'empty'}>"

    def _unknown(self, dep: str) -> str:
        similar = get_close_matches(dep, self.entries, n=1, cutoff=0.7)
        hint = f" Did you mean {similar[0]!r}?" if similar else f" Its jobs are: {', '.join(self.entries)}."
        return f"which it does not have.{hint}"

    def _check_name(self, name: object) -> None:
        if not is_text(name, MAX_NAME) or "." in str(name):
            raise InvalidWorkflow(
                f"Invalid name of a job {name!r:.200}: use 1–{MAX_NAME} printable characters without a dot."
            )
        if name in self.entries:
            raise InvalidWorkflow(f"Workflow {self.name!r} has a job {name!r} already. Use another name.")

    def _deps(self, name: str, deps: Deps, on_failure: OnFailure | None) -> dict[str | int, OnFailure | None]:
        if isinstance(deps, str | int | compat.TaskResult):
            raise InvalidWorkflow(f"Job {name!r}: invalid deps {deps!r:.200}. Use a list, like deps=[{deps!r:.50}].")
        noted: dict[str | int, OnFailure | None] = {}
        for dep in deps:
            rule = deps[dep] if isinstance(deps, Mapping) else None
            check_on_failure(rule)
            noted[dependency_key(name, dep)] = rule or on_failure
        return noted


def results_in(canvas: Canvas) -> list[Result]:
    """Return what the arguments of all signatures refer to."""
    found: list[Result] = []

    def note(path: Path, result: Result) -> None:
        found.append(result)

    for signature in canvas.signatures():
        replace_results(signature.args, (), note)
        replace_results(signature.kwargs, (), note)
    return found


def dependency_key(name: str, dep: object) -> str | int:
    """Return a name, or the id of a stored job or workflow."""
    if isinstance(dep, str) and dep:
        return dep
    id = job_id(getattr(dep, "id", dep)) if not isinstance(dep, bool) else None
    if not id:
        raise InvalidWorkflow(
            f"Job {name!r}: invalid dependency {dep!r:.200}. Use a name of this workflow, a TaskResult, or the id of a job as an int."
        )
    return id
