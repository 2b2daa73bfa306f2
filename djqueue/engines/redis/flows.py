"""Store, read and control workflows and batches on Redis. ``lua/ends.lua`` has what the end of a job does to them.

Each verb is a script, so nothing has to be locked: a dependency on a stored job is evaluated by the script that stores it. What one
script would do too much of is left in a list of effects (``lua/settle.lua``), which the verb then works on, and else the stager.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from djqueue.engines.control import BY_LENGTH, clean, who_and_why
from djqueue.engines.redis.application import Application
from djqueue.engines.redis.codec import STATES, clock, common, moment, times
from djqueue.engines.redis.parts import LIMIT, parts
from djqueue.engines.redis.settling import settle
from djqueue.exceptions import InvalidJob
from djqueue.jobs.flows import (
    SIGNAL_TASK,
    DependencyRule,
    Flow,
    FlowJob,
    FlowKind,
    FlowMember,
    InsertedFlow,
    Neighbour,
    NewFlow,
    OnFailure,
    Upstream,
    UpstreamKind,
)

_KINDS = (UpstreamKind.JOB, UpstreamKind.FLOW, UpstreamKind.ID)
_IN_FLOW, _IS_AWAITED = 16, 32
_CHUNK = 200
"""How many jobs one script changes or reads."""
_PATIENCE = 20
"""How many pages of flows are searched for those of a list."""


class RedisFlows(Application):
    def insert_flow(
        self, flows: Sequence[NewFlow], jobs: Sequence[FlowJob], *, now: datetime | None = None
    ) -> InsertedFlow:
        """A large flow is stored by several scripts between MULTI and EXEC."""
        for job, _, _ in jobs:
            if job.unique_key is not None:
                raise InvalidJob(f"Invalid job of {job.task}: jobs of workflows cannot have unique keys.")
        client = self.client
        calls: list[Sequence[Any]] = [
            (clock(now), b"", len(flows), len(jobs), first, *map(client.pack, columns))
            for first, *columns in _calls(flows, jobs, client.pack)
        ]
        if len(calls) > 1:
            first_id = client.run("reserve", len(flows) + len(jobs))
            calls = [(at, first_id, *rest) for at, _, *rest in calls]
        at, id, *answer = client.run_all("insert_flow", calls)[0]
        if not id:
            holder, whole = answer
            if whole:
                raise InvalidJob(f"Invalid workflow: {whole}, which it is a part of, has finished or does not exist.")
            return InsertedFlow([holder], (), moment(at), was_duplicate=True)
        if answer[-1]:
            settle(client, now)
        jobs_at = id + len(flows)
        return InsertedFlow(range(id, jobs_at), range(jobs_at, jobs_at + len(jobs)), moment(at))

    def close_flow(self, id: int, *, now: datetime | None = None) -> bool:
        return bool(self._run("close_flow", clock(now), id, now=now)[0])

    def flow(self, id: int) -> Flow | None:
        [fields] = self.client.run("flow", id)
        return _read_flow(id, fields)

    def flows(
        self,
        *,
        kind: FlowKind | None = None,
        name: str | None = None,
        is_finished: bool | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Flow]:
        """A search that finds little stops before it has looked at all flows."""
        finished = "" if is_finished is None else str(int(is_finished))
        found: list[Flow] = []
        place: Any = "" if before is None else before
        for _ in range(_PATIENCE):
            place, rows = self.client.run(
                "flows", place, LIMIT, kind or "", "" if name is None else f"={name}", finished
            )
            found += [flow for id, fields in rows if (flow := _read_flow(int(id), fields)) is not None]
            if not place or len(found) >= limit:
                break
        return found[:limit]

    def flow_jobs(self, id: int, *, after: int = 0, limit: int = 1000) -> list[FlowMember]:
        return [
            FlowMember(
                int(job),
                _name(meta),
                int(flow),
                STATES[state - 1].value,
                queue.decode(),
                task.decode(),
                pending,
                _edges(up),
            )
            for job, state, flow, queue, task, meta, pending, up in self._members(id, after, limit, 0, 0)
        ]

    def results(self, flow_id: int, *, after: int = 0, limit: int = 1000) -> list[tuple[int, str, str | None]]:
        return [
            (int(id), STATES[state - 1].value, None if result is None else result.decode())
            for id, state, result in self._members(flow_id, after, limit, 1, 1)
        ]

    def upstreams(self, job_id: int) -> list[Neighbour]:
        edges = sorted(_edges(self.client.run("edges", "up", job_id, 0)))
        return self._neighbours(edges, has_results=True)

    def downstreams(self, id: int, *, limit: int = 1000) -> list[Neighbour]:
        edges = _edges(self.client.run("edges", "down", id, 20 * limit))
        return [each for each in self._neighbours(edges[:limit], has_results=True) if each.state != "deleted"]

    def cancel_flow(self, id: int, *, by: str = "", reason: str = "", now: datetime | None = None) -> int:
        self.close_flow(id, now=now)
        who, why = who_and_why("Cancelled", by, reason)
        count = self._each_page("cancel_flow", id, now, who, why)
        settle(self.client, now)
        return count

    def retry_flow(self, id: int, *, by: str = "", now: datetime | None = None) -> int:
        count = self._each_page("retry_flow", id, now)
        settle(self.client, now)
        return count

    def signal(self, job_id: int, payload: str, *, by: str = "", now: datetime | None = None) -> bool:
        note = json.dumps({"signalled_by": clean(by, BY_LENGTH)}) if by else ""
        result = "" if payload == "null" else payload
        return bool(self._run("signal", clock(now), job_id, SIGNAL_TASK, result, note, now=now)[0])

    def step_here(self, id: int, claim: int, name: str, value: str) -> bool:
        """There is no transaction of the caller: the step is stored at once."""
        return bool(self.client.run("step", id, claim, name, value))

    def _run(self, verb: str, *args: Any, now: datetime | None) -> Any:
        """Run a script whose last value says whether effects are left."""
        answer = self.client.run(verb, *args)
        if answer[-1]:
            settle(self.client, now)
        return answer

    def _each_page(self, verb: str, id: int, now: datetime | None, *args: Any) -> int:
        place: Any = 0
        count = 0
        while place != b"":
            while (answer := self.client.run(verb, clock(now), id, place, _CHUNK, *args)) is None:
                settle(self.client, now)
            changed, place, _ = answer
            count += changed
        return count

    def _members(self, id: int, after: int, limit: int, *how: int) -> Iterator[Any]:
        place: Any = after
        while place != b"" and limit > 0:
            place, rows = self.client.run("flow_jobs", id, place, min(limit, _CHUNK), *how)
            limit -= len(rows)
            yield from rows

    def _neighbours(self, edges: Sequence[tuple[int, DependencyRule]], *, has_results: bool) -> list[Neighbour]:
        found: list[Neighbour] = []
        for first in range(0, len(edges), _CHUNK):
            part = edges[first : first + _CHUNK]
            rows = self.client.run("neighbours", int(has_results), *[id for id, _ in part])
            found += [_read_neighbour(id, rule, *row) for (id, rule), row in zip(part, rows, strict=True)]
        return found


def _calls(
    flows: Sequence[NewFlow], jobs: Sequence[FlowJob], pack: Any
) -> Iterator[tuple[int, list[Any], list[Any], list[Any]]]:
    """Yield the place of the first job, flows, jobs and spans for each run of ``insert_flow.lua``."""
    upstreams = [_distinct(job) for job in jobs]
    awaited = {up.at for some in upstreams for up in some if up.kind is UpstreamKind.JOB}
    sizes, opens = [0] * len(flows), [int(flow.is_open) for flow in flows]
    for _, flow_place, _ in jobs:
        if flow_place is not None:
            sizes[flow_place] += 1
    # The numbers of a flow include those of its parts, which come after it.
    for place in range(len(flows) - 1, -1, -1):
        if (whole := flows[place].whole) is not None:
            sizes[whole] += sizes[place]
            opens[whole] += opens[place]
    about: list[Any] = []
    for flow, size, count in zip(flows, sizes, opens, strict=True):
        about += (
            flow.kind.value, flow.name, flow.on_failure.value, _or_false(flow.whole), _or_false(flow.whole_id), flow.is_open,
            flow.meta, _or_false(flow.unique_key), size, count,
        )  # fmt: skip
    for first, part in parts(jobs, _flow_job_bytes) if jobs else [(0, jobs)]:
        columns: list[Any] = []
        for place, (job, _, _) in enumerate(part, first):
            flags = _IN_FLOW + (_IS_AWAITED if place in awaited else 0)
            ups = [value for kind, at, rule in upstreams[place] for value in (_KINDS.index(kind), at, rule.value)]
            columns += (
                pack(common(job))[1:],
                pack((job.args, job.kwargs)),
                job.queue,
                job.priority,
                *times(job),
                flags,
                ups,
            )
        spans = []
        for counting, members in groupby(enumerate(part, first), lambda each: each[1].flow):
            places = [place for place, _ in members]
            if counting is not None:
                spans.append((counting, places[0], places[-1]))
        yield first, [] if first else about, columns, spans


def _distinct(job: FlowJob) -> list[Upstream]:
    """Of several dependencies on the same upstream, the first one counts."""
    return list({(up.kind, up.at): up for up in reversed(job.upstreams)}.values())[::-1]


def _or_false(value: Any) -> Any:
    return False if value is None else value


def _flow_job_bytes(jobs: Sequence[FlowJob]) -> int:
    # A dependency takes the server as long as a job of a few kilobytes: so that a script stores some thousand of them.
    return sum([len(job.args) + len(job.kwargs) + len(job.meta) + 1000 * len(ups) for job, _, ups in jobs])


def _read_flow(id: int, fields: Sequence[bytes]) -> Flow | None:
    if not fields:
        return None
    of = dict(zip(map(bytes.decode, fields[::2]), map(bytes.decode, fields[1::2]), strict=True))
    return Flow(
        id,
        FlowKind(of["kind"]),
        of["name"],
        OnFailure(of["on_failure"]),
        int(of["whole"]) if "whole" in of else None,
        "is_open" in of,
        int(of["total"]),
        int(of["completed"]),
        int(of["cancelled"]),
        int(of["discarded"]),
        moment(int(of["inserted_at"])),
        moment(int(of["failed_at"])) if "failed_at" in of else None,
        moment(int(of["finished_at"])) if "finished_at" in of else None,
        of["meta"],
        of.get("key"),
    )


def _edges(text: bytes | None) -> list[tuple[int, DependencyRule]]:
    """Decode dependencies; the last one may be cut off."""
    return [(int(edge[:-1]), DependencyRule(edge[-1])) for edge in (text or b"").decode().split(",")[:-1]]


def _name(meta: bytes) -> str:
    try:
        return str(json.loads(meta)["flow"]["name"])
    except (ValueError, KeyError, TypeError):
        return ""


def _read_neighbour(id: int, rule: DependencyRule, kind: int, *about: Any) -> Neighbour:
    if kind == 1:
        state, meta, result = about
        return Neighbour(
            id, False, _name(meta), rule, STATES[state - 1].value, None if result is None else result.decode()
        )
    if kind == 2:
        name, failed_at, finished_at = about
        ended = "unfinished" if finished_at is None else "completed" if failed_at is None else "failed"
        return Neighbour(id, True, name.decode(), rule, ended)
    return Neighbour(id, False, "", rule, "deleted")
