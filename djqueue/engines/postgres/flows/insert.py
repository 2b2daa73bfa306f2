"""Store workflows: small ones in one statement, large ones by COPY.

Ids ascend in the order of the jobs, so the ids of a flow's jobs lie in a range of which the flow's row has both ends. A dependency on a
job or flow that is stored already is an event: it takes effect after the commit (``sql/flow_link.sql``).

A job that waits has no ``scheduled_at``, or the stager would look at it. Its due time or delay stands in its meta until it is released; a
delay counts from then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from djqueue.engines.postgres.bulk import copy, through_wrappers
from djqueue.engines.postgres.execution import run_here
from djqueue.engines.postgres.flows.effects import After
from djqueue.engines.postgres.flows.settling import settle_after_commit
from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.unique import job_columns
from djqueue.engines.postgres.wakes import seconds_until_due, wake_after_commit
from djqueue.exceptions import EngineUnavailable, InvalidJob
from djqueue.jobs.flows import FlowJob, InsertedFlow, NewFlow, Upstream, UpstreamKind
from djqueue.jobs.records import InsertedJob, NewJob

SMALL = 200
"""Up to this many jobs are stored in one statement."""
_TRIES = 5


class _KeyHeld(Exception):
    """An unfinished flow holds the unique key; what the transaction has stored has to go."""


def insert_flow(
    connection: BaseDatabaseWrapper,
    flows: Sequence[NewFlow],
    jobs: Sequence[FlowJob],
    now: datetime | None,
    *,
    wakes: bool,
) -> InsertedFlow:
    """See ``FlowStore.insert_flow``. ``wakes``: wake workers after the commit."""
    insertion = _Insertion(flows, jobs, now)
    if len(jobs) <= SMALL and not any(flow.unique_key or flow.whole_id for flow in flows):
        inserted = insertion.at_once(connection)
    else:
        inserted = insertion.in_steps(connection)
    if inserted.was_duplicate:
        return inserted
    if wakes:
        insertion.wake_for(connection, inserted)
    after = After(counts=insertion.counts, has_events=bool(insertion.links))
    if after:
        settle_after_commit(connection, wakes=wakes, after=after)
    return inserted


class _Insertion:
    def __init__(self, flows: Sequence[NewFlow], jobs: Sequence[FlowJob], now: datetime | None) -> None:
        self.flows = flows
        self.now = now
        self.edges: list[tuple[Upstream, int]] = []
        """Dependencies within the insert, each with the place of its downstream job."""
        self.links: list[tuple[Upstream, int]] = []
        """Dependencies on what is stored already."""
        self.pending = [0] * len(jobs)
        self.awaited_jobs: set[int] = set()
        self.awaited_flows: set[int] = set()
        self.flow_of = [job.flow for job in jobs]
        self.states: Sequence[str] = ()
        for place, job in enumerate(jobs):
            for upstream in _distinct(job):
                self._add(upstream, place)
        self.jobs = [
            _until_released(job.job) if pending else job.job for job, pending in zip(jobs, self.pending, strict=True)
        ]
        self.counts: list[int] = []
        """Those of flows without jobs, to be added up after the commit."""

    def _add(self, upstream: Upstream, place: int) -> None:
        self.pending[place] += 1
        if upstream.kind is UpstreamKind.ID:
            self.links.append((upstream, place))
            return
        self.edges.append((upstream, place))
        if upstream.kind is UpstreamKind.JOB:
            self.awaited_jobs.add(upstream.at)
        else:
            self.awaited_flows.add(upstream.at)

    def at_once(self, connection: BaseDatabaseWrapper) -> InsertedFlow:
        columns = job_columns(self.jobs) if self.jobs else {name: [] for name in NewJob._fields}
        params: dict[str, Any] = {
            **columns,
            "now": self.now,
            "relaxed": False,
            "pending": self.pending,
            "is_awaited": [place in self.awaited_jobs or None for place in range(len(self.jobs))],
            "flow": [None if flow is None else flow + 1 for flow in self.flow_of],
            "flow_kind": [flow.kind.value for flow in self.flows],
            "flow_name": [flow.name for flow in self.flows],
            "on_failure": [flow.on_failure.value for flow in self.flows],
            "whole": [None if flow.whole is None else flow.whole + 1 for flow in self.flows],
            "is_open": [flow.is_open for flow in self.flows],
            "is_awaited_flow": [place in self.awaited_flows for place in range(len(self.flows))],
            "flow_meta": [flow.meta for flow in self.flows],
            "up_job": [up.at + 1 if up.kind is UpstreamKind.JOB else None for up, _ in self.edges],
            "up_flow": [up.at + 1 if up.kind is UpstreamKind.FLOW else None for up, _ in self.edges],
            "down": [place + 1 for _, place in self.edges],
            "rule": [up.rule.value for up, _ in self.edges],
            "link_up": [up.at for up, _ in self.links],
            "link_down": [place + 1 for _, place in self.links],
            "link_rule": [up.rule.value for up, _ in self.links],
        }
        [(flow_ids, job_ids, self.states, inserted_at, counts)] = run_here(connection, "flow_insert", params)
        self.counts = counts or []
        return InsertedFlow(flow_ids, job_ids, inserted_at)

    def in_steps(self, connection: BaseDatabaseWrapper) -> InsertedFlow:
        for _ in range(_TRIES):
            try:
                with transaction.atomic(connection.alias):
                    return self._in_steps(connection)
            except _KeyHeld:
                for key in filter(None, [flow.unique_key for flow in self.flows]):
                    for id, inserted_at in run_here(connection, "flow_holder", {"key": key}):
                        return InsertedFlow([id], (), inserted_at, was_duplicate=True)
        raise EngineUnavailable(
            "Cannot determine which workflow holds the unique key: workflows with this key change too fast. Try again."
        )

    def _in_steps(self, connection: BaseDatabaseWrapper) -> InsertedFlow:
        with connection.cursor() as cursor:
            self._check_wholes(cursor)
            count = len(self.flows) + len(self.jobs)
            times = dict.fromkeys(("scheduled_at", "delay", "expires_at", "max_age"))
            cursor.execute(sql("reserve"), {**times, "count": max(1, count), "now": self.now})
            [(first, scattered, at, *_)] = rows_of(cursor)
            ids: Sequence[int] = range(first, first + count) if scattered is None else scattered
            flow_ids, job_ids = ids[: len(self.flows)], ids[len(self.flows) : count]
            cursor.execute(sql("flow_store"), self._flow_columns(flow_ids, job_ids, at))
            rows = cursor.fetchall()
            if len(rows) < len(self.flows):
                raise _KeyHeld
            self.counts = rows[0][1] or [] if rows else []
            self.states, lines = self._job_lines(flow_ids, job_ids, at)
            self._copy(connection, cursor, "flow_copy", "".join(lines).replace("\\", "\\\\"))
            edges = (
                f"{(job_ids if up.kind is UpstreamKind.JOB else flow_ids)[up.at]}\t{job_ids[place]}\t{up.rule.value}\n"
                for up, place in self.edges
            )
            self._copy(connection, cursor, "flow_copy_dependencies", "".join(edges))
            if self.links:
                links: dict[str, Any] = {
                    "upstream": [up.at for up, _ in self.links],
                    "downstream": [job_ids[place] for _, place in self.links],
                    "rule": [up.rule.value for up, _ in self.links],
                }
                cursor.execute(sql("flow_wish"), links)
        return InsertedFlow(flow_ids, job_ids, at)

    def _check_wholes(self, cursor: Any) -> None:
        ids = sorted({flow.whole_id for flow in self.flows if flow.whole_id is not None})
        if ids:
            cursor.execute(sql("flow_gone"), {"ids": ids})
            if gone := cursor.fetchall():
                raise InvalidJob(f"Cannot add jobs to workflow {gone[0][0]}: it has finished or does not exist.")

    def _flow_columns(self, flow_ids: Sequence[int], job_ids: Sequence[int], at: datetime) -> dict[str, Any]:
        members: list[list[int]] = [[] for _ in self.flows]
        for id, flow in zip(job_ids, self.flow_of, strict=True):
            if flow is not None:
                members[flow].append(id)
        return {
            "id": list(flow_ids),
            "whole_id": [flow.whole_id if flow.whole is None else flow_ids[flow.whole] for flow in self.flows],
            "kind": [flow.kind.value for flow in self.flows],
            "name": [flow.name for flow in self.flows],
            "on_failure": [flow.on_failure.value for flow in self.flows],
            "is_open": [flow.is_open for flow in self.flows],
            "is_awaited": [place in self.awaited_flows for place in range(len(self.flows))],
            "meta": [flow.meta for flow in self.flows],
            "unique_key": [flow.unique_key for flow in self.flows],
            "total": list(map(len, members)),
            "first_id": [ids[0] if ids else 0 for ids in members],
            "last_id": [ids[-1] if ids else 0 for ids in members],
            "now": at,
        }

    def _job_lines(
        self, flow_ids: Sequence[int], job_ids: Sequence[int], at: datetime
    ) -> tuple[list[str], Iterator[str]]:
        due = [_due_at(job, at) for job in self.jobs]
        states = [
            "suspended" if pending else "scheduled" if due_at is not None and due_at > at else "available"
            for pending, due_at in zip(self.pending, due, strict=True)
        ]
        now = at.isoformat()

        def lines() -> Iterator[str]:
            for place, (id, job) in enumerate(zip(job_ids, self.jobs, strict=True)):
                flow, state, due_at = self.flow_of[place], states[place], due[place]
                ends_at = _aware(job.expires_at) or (at + job.max_age if job.max_age is not None else None)
                yield "\t".join([
                    str(id),
                    state,
                    "" if flow is None else str(flow_ids[flow]),
                    "t" if place in self.awaited_jobs else "",
                    str(self.pending[place] or ""),
                    job.args,
                    job.kwargs,
                    job.queue,
                    job.task,
                    str(job.priority),
                    str(job.max_attempts),
                    now,
                    now if state == "available" else "",
                    "" if due_at is None else due_at.isoformat(),
                    "" if ends_at is None else ends_at.isoformat(),
                    job.meta,
                ]) + "\n"  # fmt: skip

        return states, lines()

    def _copy(self, connection: BaseDatabaseWrapper, cursor: Any, name: str, text: str) -> None:
        if text:
            through_wrappers(connection, cursor, sql(name), partial(copy, connection, cursor, text))

    def wake_for(self, connection: BaseDatabaseWrapper, inserted: InsertedFlow) -> None:
        available = {job.queue for job, state in zip(self.jobs, self.states, strict=True) if state == "available"}
        due_in = min(
            (
                seconds_until_due(job, InsertedJob(0, state, inserted.inserted_at))
                for job, state in zip(self.jobs, self.states, strict=True)
            ),
            default=math.inf,
        )
        if available or due_in < math.inf:
            wake_after_commit(connection, available, due_in=due_in)


def _distinct(job: FlowJob) -> Iterable[Upstream]:
    """Return the upstreams of a job. Of two dependencies on one upstream the first counts."""
    if job.job.unique_key is not None:
        raise InvalidJob("Jobs of a workflow cannot have unique keys. Make the workflow unique instead.")
    found: dict[tuple[UpstreamKind, int], Upstream] = {}
    for upstream in job.upstreams:
        found.setdefault((upstream.kind, upstream.at), upstream)
    return found.values()


def _until_released(job: NewJob) -> NewJob:
    """Move the due time of a job that waits for others to its meta."""
    if job.scheduled_at is None and not job.delay:
        return job
    meta = json.loads(job.meta)
    due_at = _aware(job.scheduled_at)
    due: dict[str, Any] = (
        {"delay": (job.delay or timedelta()).total_seconds()} if due_at is None else {"due_at": due_at.isoformat()}
    )
    meta["flow"] = {**meta.get("flow", {}), **due}
    return job._replace(meta=json.dumps(meta), scheduled_at=None, delay=None)


def _due_at(job: NewJob, at: datetime) -> datetime | None:
    if (due_at := _aware(job.scheduled_at)) is not None:
        return due_at
    return at + job.delay if job.delay is not None and job.delay > timedelta() else None


def _aware(moment: datetime | None) -> datetime | None:
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment
