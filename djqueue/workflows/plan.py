"""Plan a chain, a group or a workflow: the flows, jobs and dependencies that an engine stores. Nothing here knows a store.

Jobs are in an order in which each follows those that it waits for. More than ``MAX_EDGES`` jobs that another one waits for become
a counted *part*, which is one dependency: a row per edge would make the last of ten thousand members pay for all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from djqueue import compat, propagation
from djqueue.conf import Options
from djqueue.exceptions import InvalidJob, InvalidWorkflow
from djqueue.jobs import flows as stored
from djqueue.jobs.encoding import encode_arguments
from djqueue.jobs.flows import DependencyRule, FlowJob, FlowKind, NewFlow, Upstream, UpstreamKind
from djqueue.tasks.new_job import encoded_job
from djqueue.tasks.signatures import check_arguments
from djqueue.tasks.task import Task
from djqueue.workflows import signals
from djqueue.workflows.canvas import Canvas, Chain, Group, OnFailure, Signature
from djqueue.workflows.drafts import Before, Draft, Input, Wait
from djqueue.workflows.ends import flat, shape
from djqueue.workflows.inputs import KEY
from djqueue.workflows.refusals import MAX_FLOW_NAME, check_task
from djqueue.workflows.result import Path, Result, replace_results
from djqueue.workflows.workflow import Entry, SignalWait, Workflow, dependency_key, results_in

if TYPE_CHECKING:
    from djqueue.workflows.ends import Ends

MAX_EDGES = 50
_RULES: Mapping[str, DependencyRule] = {
    "fail": DependencyRule.SUCCESS,
    "ignore": DependencyRule.ANY_END,
    "drop": DependencyRule.ANY_END,
    "compensate": DependencyRule.FAILURE,
}
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Plan(NamedTuple):
    flows: list[NewFlow]
    """The first is the whole."""
    jobs: list[FlowJob]
    tasks: list[Task]
    """Of the jobs."""
    names: Mapping[str, int]
    """Name of a job → its place."""
    ends: list[int]
    """The places of the jobs after which nothing else follows in a chain or group; of a workflow, none."""


def plan(
    work: Canvas | Workflow,
    options: Options,
    alias: str,
    *,
    validate: Callable[[compat.Task[..., Any]], None] = lambda task: None,
    whole_id: int | None = None,
) -> Plan:
    """Check and plan a whole; raise ``InvalidWorkflow``, or ``InvalidArguments`` for arguments that do not fit their task.

    ``options`` are those of the backend ``alias``, on which all jobs run. ``whole_id``: the jobs are added to this stored flow.
    """
    planner = _Planner(options, alias, validate)
    kind = FlowKind.WORKFLOW if whole_id is None else FlowKind.PART
    if isinstance(work, Workflow):
        key = work.unique_key if whole_id is None else None
        planner.flows.append(_flow_of(work, kind)._replace(whole_id=whole_id, unique_key=key))
        planner.place_workflow(work, 0, "", ())
        ends: list[int] = []
    else:
        planner.flows.append(NewFlow(kind, work.label[:MAX_FLOW_NAME], whole_id=whole_id))
        ends = list(flat(planner.place(work, 0, "", None, (), {})))
    return planner.finish(ends)


class _Planner:
    def __init__(self, options: Options, alias: str, validate: Callable[[compat.Task[..., Any]], None]) -> None:
        self._options = options
        self._alias = alias
        self._validate = validate
        self.flows: list[NewFlow] = []
        self._drafts: list[Draft] = []
        self._names: dict[str, int] = {}
        self._flow_names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._parts: dict[tuple[int, ...], int] = {}
        """Places of jobs → the part that counts them."""

    # Place

    def place_workflow(
        self, workflow: Workflow, flow: int, prefix: str, waits: Sequence[Wait]
    ) -> dict[str, Ends | Upstream]:
        """Place the jobs of a workflow in a flow; return what each name, also one of a workflow in it, stands for."""
        if not workflow.entries:
            raise InvalidWorkflow(f"Workflow {workflow.name!r} is empty. Add a job.")
        found: dict[str, Ends | Upstream] = {}
        queue = next((each.task.queue_name for each in workflow.signatures()), compat.DEFAULT_TASK_QUEUE_NAME)
        for name in workflow.in_order():
            entry = workflow.entries[name]
            own = [self._wait(workflow, name, dep, rule, found) for dep, rule in entry.deps.items()]
            if not any(True for _ in entry.names):
                own.extend(waits)
            path = prefix + name
            if isinstance(entry.work, Workflow):
                if any(wait.on_failure == "compensate" for wait in own):
                    raise InvalidWorkflow(
                        f"Job {path!r}: a workflow cannot compensate for a failure. Use a task, a chain or a group."
                    )
                part = self._add_flow(
                    _flow_of(entry.work, FlowKind.PART)._replace(name=path[:MAX_FLOW_NAME], whole=flow)
                )
                inner = self.place_workflow(entry.work, part, f"{path}.", own)
                found[name] = Upstream(UpstreamKind.FLOW, part)
                found.update({f"{name}.{each}": ends for each, ends in inner.items()})
            elif isinstance(entry.work, SignalWait):
                signature = signals.signature(self._alias, queue, name, entry.work.timeout)
                found[name] = self._place_one(signature, flow, "", path, None, (), {})
            elif isinstance(entry.work, Signature):
                found[name] = self._place_one(
                    entry.work, flow, "", path, None, own, self._results(workflow, name, entry, found)
                )
            else:
                results = self._results(workflow, name, entry, found)
                found[name] = self.place(entry.work, flow, f"{path}.", None, own, results)
        return found

    def place(
        self,
        canvas: Canvas,
        flow: int,
        prefix: str,
        before: Before | None,
        waits: Sequence[Wait],
        results: Mapping[str | int, Before],
    ) -> Ends:
        """Place the jobs of a canvas behind others; return the jobs in which it ends."""
        if isinstance(canvas, Chain):
            for item in canvas.items:
                ends = self.place(item, flow, prefix, before, waits, results)
                own = item.on_failure if isinstance(item, Group) else None
                before = Before(ends, canvas.on_failure or own or "fail")
            return ends
        if isinstance(canvas, Group):
            return [self.place(member, flow, prefix, before, waits, results) for member in canvas.members]
        assert isinstance(canvas, Signature)
        return self._place_one(canvas, flow, prefix, "", before, waits, results)

    def _place_one(
        self,
        signature: Signature,
        flow: int,
        prefix: str,
        name: str,
        before: Before | None,
        waits: Sequence[Wait],
        results: Mapping[str | int, Before],
    ) -> int:
        draft = Draft(signature, flow, prefix)
        place = len(self._drafts)
        if name:
            self._names[name] = place
            draft.name = name

        def note(path: Path, result: Result) -> None:
            key = dependency_key(name or signature.label, result.of)
            if key not in results:
                raise InvalidWorkflow(
                    f"{signature!r:.200} refers to Result({result.of!r:.100}), which only a job of a Workflow can."
                    " Use Workflow.add(…)."
                )
            draft.inputs.append(Input(path, results[key].ends, results[key].on_failure == "drop"))

        first: tuple[Any, ...] = ()
        if before is not None:
            self._link(draft, before.ends, before.on_failure)
            if signature.takes_result:
                if before.on_failure == "compensate":
                    raise InvalidWorkflow(
                        f"{signature!r:.200} runs only after a failure, so there is no result to take. Use {signature.label}.si(…)."
                    )
                draft.inputs.append(Input(("args", 0), before.ends, before.on_failure == "drop"))
                first = (None,)
        else:
            for wait in waits:
                self._link(draft, wait.on, wait.on_failure)
        if self._is_conditional(draft):
            draft.flow = None
        draft.args = replace_results((*first, *signature.args), ("args",), note)
        draft.kwargs = replace_results(signature.kwargs, ("kwargs",), note)
        self._check(signature, draft)
        self._drafts.append(draft)
        return place

    def _check(self, signature: Signature, draft: Draft) -> None:
        task = signature.task
        check_task(task, self._options, self._alias, _where(draft))
        self._validate(task)
        try:
            check_arguments(task, draft.args, draft.kwargs)
        except InvalidJob as error:
            raise type(error)(f"{_where(draft)}: {error}") from None

    # Dependencies

    def _wait(
        self,
        workflow: Workflow,
        name: str,
        dep: str | int,
        rule: OnFailure | None,
        found: Mapping[str, Ends | Upstream],
    ) -> Wait:
        default: OnFailure = "fail" if workflow.on_failure == "cancel" else workflow.on_failure
        if isinstance(dep, int):
            return Wait(Upstream(UpstreamKind.ID, dep), rule or default)
        if dep not in found:
            first, _, rest = dep.partition(".")
            raise InvalidWorkflow(
                f"Job {name!r} of workflow {workflow.name!r} depends on {dep!r}, but {first!r} has no job {rest!r}."
            )
        return Wait(found[dep], rule or default)

    def _results(
        self, workflow: Workflow, name: str, entry: Entry, found: Mapping[str, Ends | Upstream]
    ) -> dict[str | int, Before]:
        """Return what ``Result`` may refer to in an entry: all that it depends on."""
        results: dict[str | int, Before] = {}
        for dep, rule in entry.deps.items():
            wait = self._wait(workflow, name, dep, rule, found)
            on: Ends | Upstream = -dep if isinstance(dep, int) else wait.on
            if isinstance(on, Upstream) or wait.on_failure == "compensate":
                continue
            results[dep] = Before(on, wait.on_failure)
        for result in results_in(entry.work) if isinstance(entry.work, Canvas) else ():
            key = dependency_key(name, result.of)
            if key not in results:
                reason = (
                    f"it runs only if {key!r} fails, and then there is no result."
                    if isinstance(found.get(str(key)), int | list)
                    else f"{key!r} is a workflow. Use one of its jobs, like Result('{key}.name')."
                )
                raise InvalidWorkflow(
                    f"Job {name!r} of workflow {workflow.name!r} refers to Result({key!r}), but {reason}"
                )
        return results

    def _link(self, draft: Draft, on: Ends | Upstream, on_failure: OnFailure) -> None:
        rule = _RULES[on_failure]
        if isinstance(on, Upstream):
            draft.upstreams[on.kind, on.at] = rule
            return
        places = tuple(sorted(flat(on)))
        if len(places) > MAX_EDGES and (part := self._part(places)) is not None:
            draft.upstreams[UpstreamKind.FLOW, part] = rule
            return
        if rule is DependencyRule.FAILURE and len(places) > 1:
            # One failure is enough; each edge on its own would wait for the failure of its job.
            if (part := self._part(places)) is None:
                raise InvalidWorkflow(
                    f"{draft.signature!r:.200} cannot compensate for jobs that are counted elsewhere, too."
                )
            draft.upstreams[UpstreamKind.FLOW, part] = rule
            return
        for place in places:
            draft.upstreams[UpstreamKind.JOB, place] = rule

    def _is_conditional(self, draft: Draft) -> bool:
        """Return whether a job runs only after a failure, or only after such a job."""
        return any(
            rule is DependencyRule.FAILURE
            or (rule is DependencyRule.SUCCESS and kind is UpstreamKind.JOB and self._drafts[at].flow is None)
            for (kind, at), rule in draft.upstreams.items()
        )

    def _part(self, places: tuple[int, ...]) -> int | None:
        """Return the part that counts these jobs; None if there can be none, because a job is counted once."""
        if (known := self._parts.get(places)) is not None:
            return known
        drafts = [self._drafts[place] for place in places]
        taken = set(self._parts.values())
        [*wholes] = {draft.flow for draft in drafts}
        if len(wholes) != 1 or wholes[0] is None or wholes[0] in taken:
            return None
        name = self._free_name(f"{drafts[0].prefix}{drafts[0].signature.label}", self._flow_names)
        part = self._add_flow(NewFlow(FlowKind.PART, name[:MAX_FLOW_NAME], whole=wholes[0]))
        for draft in drafts:
            draft.flow = part
        self._parts[places] = part
        return part

    def _add_flow(self, flow: NewFlow) -> int:
        self.flows.append(flow)
        self._flow_names.add(flow.name)
        return len(self.flows) - 1

    # Finish

    def finish(self, ends: list[int]) -> Plan:
        if all(draft.flow is None for draft in self._drafts):
            # They compensate for jobs that are stored already. A flow that counts no job would never finish.
            for draft in self._drafts:
                draft.flow = 0
        for draft in self._drafts:
            self._gather(draft)
        sources = [[self._input(each) for each in draft.inputs] for draft in self._drafts]
        captured = propagation.capture()
        jobs = [self._job(draft, inputs, captured) for draft, inputs in zip(self._drafts, sources, strict=True)]
        tasks = [Task.of(draft.signature.task) for draft in self._drafts]
        return Plan(self.flows, jobs, tasks, self._names, ends)

    def _gather(self, draft: Draft) -> None:
        """Replace very many dependencies on single jobs by one on a part, except for those whose results are read."""
        if len(draft.upstreams) <= MAX_EDGES:
            return
        read = {place for each in draft.inputs for place in flat(each.ends)}
        by_rule: dict[DependencyRule, list[int]] = {}
        for (kind, at), rule in draft.upstreams.items():
            if kind is UpstreamKind.JOB and at not in read:
                by_rule.setdefault(rule, []).append(at)
        for rule, places in by_rule.items():
            # A failure of each of them is waited for, and a part reports the first.
            if len(places) <= MAX_EDGES or rule is DependencyRule.FAILURE:
                continue
            if (part := self._part(tuple(sorted(places)))) is not None:
                for place in places:
                    del draft.upstreams[UpstreamKind.JOB, place]
                draft.upstreams[UpstreamKind.FLOW, part] = rule

    def _input(self, each: Input) -> list[Any]:
        source = self._source(each.ends, each.is_dropped)
        return [list(each.path), source]

    def _source(self, ends: Ends, is_dropped: bool) -> Any:
        """Return what ``inputs.py`` reads: a name, the id of a stored job, or an object for a list."""
        if isinstance(ends, int):
            return -ends if ends < 0 else self._name_of(ends)
        places = tuple(flat(ends))
        drop = {"drop": True} if is_dropped else {}
        # A part lists its results in the order of its jobs.
        if len(places) > MAX_EDGES and (part := self._parts.get(places)) is not None:
            nested = {} if all(isinstance(each, int) for each in ends) else {"shape": shape(ends)}
            return {"part": self.flows[part].name, **nested, **drop}
        return {"list": [self._source(each, is_dropped) for each in ends], **drop}

    def _name_of(self, place: int) -> str:
        draft = self._drafts[place]
        if not draft.name:
            draft.name = self._free_name(draft.prefix + draft.signature.label, self._names)
            self._names[draft.name] = place
        return draft.name

    def _free_name(self, name: str, taken: Mapping[str, int] | set[str]) -> str:
        found = name
        while found in taken:
            self._numbers[name] = number = self._numbers.get(name, 1) + 1
            found = f"{name}#{number}"
        return found

    def _job(self, draft: Draft, inputs: list[Any], captured: str) -> FlowJob:
        meta = captured
        if draft.name or inputs:
            own = {**({"name": draft.name} if draft.name else {}), **({"put": inputs} if inputs else {})}
            meta = f'{captured[:-1]}{"" if captured == "{}" else ","}"{KEY}":{_dumps(own)}}}'
        task = Task.of(draft.signature.task)
        try:
            encoded = encode_arguments(draft.args, draft.kwargs, self._options.max_args_bytes)
        except InvalidJob as error:
            raise type(error)(f"{draft.signature!r:.200}: {error}") from None
        upstreams = [Upstream(kind, at, rule) for (kind, at), rule in draft.upstreams.items()]
        return FlowJob(encoded_job(task, encoded, meta, self._options), draft.flow, upstreams)


def _flow_of(workflow: Workflow, kind: FlowKind) -> NewFlow:
    on_failure = stored.OnFailure.CANCEL if workflow.on_failure == "cancel" else stored.OnFailure.GO_ON
    return NewFlow(kind, workflow.name, on_failure, meta=_dumps(workflow.meta))


def _where(draft: Draft) -> str:
    return f"Job {draft.name!r}" if draft.name else f"{draft.signature!r:.200}"
