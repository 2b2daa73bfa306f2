"""What a job of a workflow reads of those that it waited for: results for its arguments, and for its context.

A job's meta names them, because their ids are not known before all jobs are stored::

    {"flow": {"name": "publish", "put": [[["args", 0], "resize"], [["kwargs", "all"], {"list": ["a", "b"], "drop": true}]]}}

Each ``put`` is a path into the arguments and a source: the name of an upstream, the id of one that was stored before, a list of
sources, or a part whose jobs' results are a list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from djqueue.exceptions import MissingResult
from djqueue.jobs.flows import DependencyRule, Neighbour
from djqueue.jobs.states import JobState

if TYPE_CHECKING:
    from djqueue.engines.protocol.flows import FlowStore

KEY = "flow"
"""The key in a job's meta."""
_PAGE = 1000
_LEFT_OUT = object()


def put_results(engine: FlowStore, job_id: int, meta: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Put the results that a job asked for into its arguments; raise ``MissingResult`` if one is not there any more."""
    own = json.loads(meta).get(KEY)
    puts = own.get("put") if isinstance(own, dict) else None
    if not puts:
        return
    upstreams = Upstreams(engine, job_id)
    for (where, *path), source in puts:
        target: Any = args if where == "args" else kwargs
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = upstreams.value(source)


class Upstreams:
    """The jobs and parts that a job waited for. Read from the store on first use."""

    def __init__(self, engine: FlowStore, job_id: int) -> None:
        self._engine = engine
        self._job_id = job_id

    @cached_property
    def all(self) -> Sequence[Neighbour]:
        return self._engine.upstreams(self._job_id)

    @cached_property
    def by_name(self) -> dict[str, Neighbour]:
        return {each.name: each for each in self.all if each.name and not each.is_flow}

    def value(self, source: Any, *, drop: bool = False) -> Any:
        """Return the value of a source."""
        if isinstance(source, str | int):
            return self._one(source, drop)
        if "part" in source:
            values = self.of_part(source["part"], drop=bool(source.get("drop")))
            return (
                _shaped(values, source["shape"])
                if "shape" in source
                else [each for each in values if each is not _LEFT_OUT]
            )
        drop = bool(source.get("drop")) or drop
        values = (self.value(each, drop=drop) for each in source["list"])
        return [each for each in values if each is not _LEFT_OUT]

    def of_part(self, name: str, *, drop: bool) -> Iterator[Any]:
        """Yield the results of a part's jobs in their order."""
        part = next((each for each in self.all if each.is_flow and each.name == name), None)
        if part is None:
            raise MissingResult(f"The results of {name!r} do not exist any more.")
        after = 0
        while page := self._engine.results(part.id, after=after, limit=_PAGE):
            for _, state, result in page:
                if state == JobState.COMPLETED:
                    yield None if result is None else json.loads(result)
                else:
                    yield _LEFT_OUT if drop else None
            after = page[-1][0]

    def _one(self, source: str | int, drop: bool) -> Any:
        if isinstance(source, str):
            found = self.by_name.get(source)
        else:
            found = next((each for each in self.all if each.id == source), None)
        if found is None:
            raise MissingResult(
                f"The job {source!r}, whose result is an argument, is not among those that this job waited for."
            )
        return result_of(found, _LEFT_OUT if drop else None)


def result_of(upstream: Neighbour, default: Any = None) -> Any:
    """Return the result of a job, or ``default`` if it did not complete."""
    if upstream.state == JobState.COMPLETED:
        return None if upstream.result is None else json.loads(upstream.result)
    if upstream.rule is DependencyRule.SUCCESS:
        # It completed once, or this job would not run.
        raise MissingResult(
            f"The result of job {upstream.id}{f' ({upstream.name})' if upstream.name else ''} does not exist any more: the job is"
            f" {upstream.state}."
        )
    return default


def _shaped(values: Iterator[Any], shape: list[Any]) -> list[Any]:
    shaped = [next(values, None) if each is None else _shaped(values, each) for each in shape]
    return [each for each in shaped if each is not _LEFT_OUT]
