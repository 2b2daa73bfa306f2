"""Workflows in tests: how to write one down, and the steps of an ack one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psycopg

from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.execution import Execute, run_on
from djqueue.engines.postgres.flows import effects
from djqueue.engines.postgres.flows.acking import flow_statement
from djqueue.engines.postgres.flows.effects import After, End
from djqueue.jobs.flows import DependencyRule, FlowJob, InsertedFlow, NewFlow, Upstream, UpstreamKind
from djqueue.jobs.records import Ack, ClaimedJob, NewJob
from djqueue.jobs.states import JobState
from djqueue.models import FinishedJob, Job
from tests.roles import Roles

SUCCESS, ANY_END, FAILURE = DependencyRule.SUCCESS, DependencyRule.ANY_END, DependencyRule.FAILURE


def after(*places: int, rule: DependencyRule = SUCCESS) -> list[Upstream]:
    return [Upstream(UpstreamKind.JOB, place, rule) for place in places]


def of_flow(place: int = 0, rule: DependencyRule = SUCCESS) -> Upstream:
    return Upstream(UpstreamKind.FLOW, place, rule)


def stored(id: int, rule: DependencyRule = SUCCESS) -> Upstream:
    return Upstream(UpstreamKind.ID, id, rule)


def workflow(
    engine: PostgresEngine,
    *deps: Sequence[Upstream],
    flow: NewFlow | None = None,
    callbacks: Sequence[DependencyRule] = (),
) -> InsertedFlow:
    """Store a workflow with a job for each of ``deps``, which says what the job waits for, and callbacks that it does not count."""
    jobs = [FlowJob(NewJob("tests.task"), 0, up) for up in deps]
    jobs += [FlowJob(NewJob("tests.callback"), None, [of_flow(0, rule)]) for rule in callbacks]
    return engine.insert_flow([flow or NewFlow()], jobs)


def states(ids: Sequence[int]) -> list[str]:
    found = dict(Job.objects.filter(id__in=ids).values_list("id", "state"))
    found |= dict(FinishedJob.objects.filter(id__in=ids).values_list("id", "state"))
    return [found.get(id, "deleted") for id in ids]


def outcome(job: ClaimedJob, state: JobState = JobState.COMPLETED, **fields: Any) -> Ack:
    return Ack(job.id, job.claim, state, flow_id=job.flow_id, is_awaited=job.is_awaited, result="1", **fields)


def end(worker: Roles, jobs: Sequence[ClaimedJob], state: JobState = JobState.COMPLETED) -> set[int]:
    return set(worker.ack([outcome(job, state) for job in jobs]).accepted)


def run(worker: Roles, me: Any, limit: int = 10) -> list[int]:
    """Fetch and complete jobs; return their ids."""
    jobs = worker.fetch("default", limit, me)
    assert end(worker, jobs) == {job.id for job in jobs}
    return [job.id for job in jobs]


class Stepwise:
    """An ack, a link or a count that stops between its statements."""

    def __init__(self, session: psycopg.Connection) -> None:
        self.session = session
        self.after = After()

    @property
    def execute(self) -> Execute:
        return run_on(self.session.cursor())

    def ack(self, job: ClaimedJob, state: JobState = JobState.COMPLETED) -> list[End]:
        name, params = flow_statement([outcome(job, state)], None, as_events=False)
        return [End(row[0], row[2]) for row in self.execute(name, params) if row[3]]

    def release(self, ends: Sequence[End]) -> None:
        effects.release(self.execute, ends, self.after, None)

    def link(self) -> None:
        """Take the oldest dependency on what was stored before, and let it take effect."""
        [(_, upstream, _, detail)] = self.execute("flow_events", {"kind": "link", "limit": 1, "skipped": "{}"})
        effects.link(self.execute, upstream, json.loads(detail), self.after, None)

    def take_ends(self) -> list[End]:
        rows = self.execute("flow_events", {"kind": "ended", "limit": 10, "skipped": "{}"})
        return [End(row[1], row[2]) for row in rows]

    def fold(self, counts: Sequence[int]) -> list[tuple[int, bool]]:
        ids = "{" + ",".join(map(str, counts)) + "}"
        return [row[:2] for row in self.execute("flow_fold", {"ids": ids, "limit": 99, "now": None})]

    def finish(self, *ids: int) -> list[Any]:
        return self.execute("flow_finish", {"ids": list(ids), "now": None})

    def whole(self, *ids: int) -> list[Any]:
        return self.execute("flow_whole", {"ids": list(ids), "failed": [], "now": None})

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()
