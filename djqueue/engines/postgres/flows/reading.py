"""Read flows, their jobs and their dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from djqueue.engines.postgres.application import Application
from djqueue.engines.postgres.columns import numbers
from djqueue.jobs.flows import DependencyRule, Flow, FlowKind, FlowMember, Neighbour, OnFailure

_END = 2**63 - 1


class PostgresFlowReader(Application):
    def flow(self, id: int) -> Flow | None:
        if not 0 < id <= _END:
            return None
        rows = self.execute("flow_get", {"id": id})
        return _flow(rows[0]) if rows else None

    def flows(
        self,
        *,
        kind: FlowKind | None = None,
        name: str | None = None,
        is_finished: bool | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Flow]:
        params = {
            "kind": None if kind is None else kind.value,
            "name": name,
            "is_finished": is_finished,
            "before": _END if before is None else before,
            "limit": limit,
        }
        return list(map(_flow, self.execute("flow_list", params)))

    def flow_jobs(self, id: int, *, after: int = 0, limit: int = 1000) -> list[FlowMember]:
        ranges = self.execute("flow_ranges", {"id": id, "after": after})
        return list(map(_member, self._members("flow_jobs", ranges, after, limit)))

    def results(self, flow_id: int, *, after: int = 0, limit: int = 1000) -> list[tuple[int, str, str | None]]:
        ranges = [row for row in self.execute("flow_ranges", {"id": flow_id, "after": after}) if row[0] == flow_id]
        return [(id, state, result) for id, state, result in self._members("flow_results", ranges, after, limit)]

    def upstreams(self, job_id: int) -> list[Neighbour]:
        return list(map(_neighbour, self.execute("flow_upstreams", {"id": job_id})))

    def downstreams(self, id: int, *, limit: int = 1000) -> list[Neighbour]:
        return list(map(_neighbour, self.execute("flow_downstreams", {"id": id, "limit": limit})))

    def _members(
        self, statement: str, ranges: Sequence[tuple[Any, ...]], after: int, limit: int
    ) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for slice in _slices(ranges, after, limit):
            params = {
                "flow_id": numbers([id for island in slice for id in island.flow_ids]),
                "first": numbers([island.first for island in slice]),
                "last": numbers([island.last for island in slice]),
                "limit": limit - len(found),
            }
            found += self.execute(statement, params)
            if len(found) >= limit:
                break
        return found


class _Island(NamedTuple):
    """A range of ids with the jobs of some flows, apart from all other ranges."""

    flow_ids: list[int]
    first: int
    last: int
    total: int


def _slices(ranges: Sequence[tuple[Any, ...]], after: int, limit: int) -> Iterator[list[_Island]]:
    """Yield what one statement looks at: in order, and no more than it takes to find ``limit`` jobs.

    A large batch has thousands of parts. A statement over all of them would look at each for every page.
    """
    slice: list[_Island] = []
    for island in _islands(ranges, after):
        slice.append(island)
        if sum(each.total for each in slice) >= limit:
            yield slice
            slice = []
    if slice:
        yield slice


def _islands(ranges: Sequence[tuple[Any, ...]], after: int) -> Iterator[_Island]:
    island: _Island | None = None
    for id, first, last, total in ranges:
        first = max(first, after + 1)
        if island is not None and first <= island.last:
            island = _Island([*island.flow_ids, id], island.first, max(island.last, last), island.total + total)
        else:
            if island is not None:
                yield island
            island = _Island([id], first, last, total)
    if island is not None:
        yield island


def _flow(row: tuple[Any, ...]) -> Flow:
    flow = Flow(*row)
    return flow._replace(kind=FlowKind(flow.kind), on_failure=OnFailure(flow.on_failure))


def _member(row: tuple[Any, ...]) -> FlowMember:
    id, name, flow_id, state, queue, task, pending, upstreams, rules = row
    edges = list(zip(upstreams or (), map(DependencyRule, rules or ()), strict=True))
    return FlowMember(id, name, flow_id, state, queue, task, pending, edges)


def _neighbour(row: tuple[Any, ...]) -> Neighbour:
    neighbour = Neighbour(*row)
    return neighbour._replace(rule=DependencyRule(neighbour.rule))
