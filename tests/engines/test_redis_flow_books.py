"""The books of workflows on Redis: whatever happens, what is counted and waited for agrees with how the jobs ended."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest

from djqueue.engines.redis import RedisEngine
from djqueue.jobs.flows import (
    DependencyRule,
    FlowJob,
    FlowKind,
    InsertedFlow,
    NewFlow,
    OnFailure,
    Upstream,
    UpstreamKind,
)
from djqueue.jobs.records import Ack, ClaimedJob, NewJob, PruneRule
from djqueue.jobs.states import FINAL_STATES, JobState
from tests.roles import Roles

pytestmark = pytest.mark.parametrize("engine", ["valkey", "redis7"], indirect=True)
BAD = {"cancelled", "discarded", "deleted", "failed"}
EVERYTHING = [PruneRule(state, max_count=0) for state in FINAL_STATES]
LEFT = {"seq", "server", "queues", "has_flows", "workers", "beats"}
"""What a store without jobs still has."""


def verdict(state: str, rule: str) -> str | None:
    """What an upstream in this state does to a dependency; None: it has not ended."""
    if state == "completed":
        return "stops" if rule == "f" else "met"
    if state in BAD:
        return "stops" if rule == "s" else "met"
    return None


class Books:
    """Reads the keys of an engine, to compare them with each other."""

    def __init__(self, engine: RedisEngine) -> None:
        self.engine = engine
        self.prefix = engine.client.key.decode()

    def keys(self, kind: str = "") -> set[str]:
        found = self.engine.client.command("KEYS", f"{self.prefix}{kind}*")
        return {key.decode().removeprefix(self.prefix + kind) for key in found}

    def edges(self, key: str) -> list[tuple[int, str]]:
        text = self.engine.client.command("GET", f"{self.prefix}{key}") or b""
        return [(int(edge[:-1]), edge[-1]) for edge in text.decode().split(",")[:-1]]

    def audit(self) -> None:
        """To be called when all effects have happened."""
        client = self.engine.client
        assert client.command("LLEN", f"{self.prefix}effects") == 0
        flows = {int(id): self.engine.flow(int(id)) for id in self.keys("flow:")}
        jobs = {int(id): self.engine.get(int(id)) for id in self.keys("job:")}
        waits = {
            int(id): {int(up) for up in client.command("SMEMBERS", f"{self.prefix}waits:{id}")}
            for id in self.keys("waits:")
        }

        def state(id: int, rule: str) -> str:
            if id in flows:
                flow = flows[id]
                if rule == "f" and flow.failed_at:
                    return "failed"
                return "unfinished" if not flow.finished_at else "failed" if flow.failed_at else "completed"
            return jobs[id].state.value if id in jobs else "deleted"

        assert set(waits) == {id for id, job in jobs.items() if job.state is JobState.SUSPENDED}
        for id, unmet in waits.items():
            ups = self.edges(f"up:{id}")
            assert unmet == {up for up, rule in ups if verdict(state(up, rule), rule) is None}, id
            # A deleted one may have completed before.
            states = [(state(up, rule), rule) for up, rule in ups]
            assert not [each for each in states if each[0] != "deleted" and verdict(*each) == "stops"], id
        counted: dict[int, Counter[str]] = {id: Counter() for id in flows}
        for id, flow in flows.items():
            for member in self.engine.flow_jobs(id, limit=10_000):
                counted[id][member.state] += 1
            deleted = flow.total - counted[id].total()
            assert flow.completed == counted[id]["completed"] or deleted
            assert flow.discarded == counted[id]["discarded"] or deleted
            ended = flow.completed + flow.cancelled + flow.discarded
            living = counted[id].total() - sum(counted[id][each.value] for each in FINAL_STATES)
            assert flow.total - ended == living, id
            assert (flow.failed_at is not None) == (flow.cancelled + flow.discarded > 0), id
            if flow.finished_at:
                assert living == 0
        for id in self.keys("up:"):
            assert int(id) in jobs
        for key in self.keys("down:"):
            assert int(key) in jobs or int(key) in flows


class Anyone:
    """Does at random what users, workers and operators do with workflows."""

    def __init__(self, engine: RedisEngine, worker: Roles, me: UUID, seed: int) -> None:
        self.engine, self.worker, self.me, self.chance = engine, worker, me, random.Random(seed)
        self.flows: list[int] = []
        self.jobs: list[int] = []
        self.counted: list[int] = []
        """Jobs that wait for no flow: what joins that flow later may wait for them."""
        self.claimed: list[ClaimedJob] = []

    def act(self) -> None:
        acts = [
            self.insert,
            self.fetch,
            self.ack,
            self.control,
            self.control_flow,
            self.rescue,
            self.settle,
            self.prune,
        ]
        self.chance.choices(acts, [4, 6, 8, 3, 1, 1, 2, 0.3])[0]()

    def rule(self) -> DependencyRule:
        return self.chance.choice([*DependencyRule, DependencyRule.SUCCESS, DependencyRule.SUCCESS])

    def insert(self) -> InsertedFlow | None:
        chance = self.chance
        flows = [
            NewFlow(
                on_failure=chance.choice([*OnFailure, OnFailure.GO_ON, OnFailure.GO_ON]), is_open=chance.random() < 0.2
            )
        ]
        unfinished = [id for id in self.flows if (flow := self.engine.flow(id)) and not flow.finished_at]
        if unfinished and chance.random() < 0.3:
            flows = [NewFlow(FlowKind.PART, whole_id=chance.choice(unfinished))]
        for _ in range(chance.randint(0, 2)):
            flows.append(NewFlow(FlowKind.PART, whole=chance.randrange(len(flows))))
        jobs: list[FlowJob] = []
        for place in range(chance.randint(0, 8)):
            counted = [at for at in range(place) if jobs[at].flow is not None]
            some = chance.sample(counted, min(len(counted), chance.randint(0, 3)))
            ups = [Upstream(UpstreamKind.JOB, at, self.rule()) for at in some]
            flow = chance.choice([None, *range(len(flows))])
            if flow is None and chance.random() < 0.6:
                ups.append(Upstream(UpstreamKind.FLOW, chance.randrange(len(flows)), self.rule()))
            if chance.random() < 0.3:
                stored = chance.choice([*self.counted[-30:], 10**9])
                ups.append(Upstream(UpstreamKind.ID, stored, self.rule()))
            attempts = chance.choice([1, 3])
            delay = chance.choice([None, None, None, timedelta(milliseconds=1)])
            jobs.append(FlowJob(NewJob("tests.task", max_attempts=attempts, delay=delay), flow, ups))
        if chance.random() < 0.3:
            self.jobs += [job.id for job in self.engine.insert([NewJob("tests.task")])]
        inserted = self.engine.insert_flow(flows, jobs)
        self.flows += inserted.flow_ids
        self.jobs += inserted.job_ids
        self.counted += [id for id, job in zip(inserted.job_ids, jobs, strict=True) if job.flow is not None]
        return inserted

    def fetch(self) -> None:
        self.worker.stage()
        self.claimed += self.worker.fetch("default", self.chance.randint(1, 5), self.me)

    def ack(self) -> None:
        self.chance.shuffle(self.claimed)
        some, self.claimed = self.claimed[:4], self.claimed[4:]
        states = [JobState.COMPLETED] * 5 + [JobState.DISCARDED, JobState.CANCELLED, JobState.RETRYABLE]
        self.worker.ack([
            Ack(job.id, job.claim, self.chance.choice(states), flow_id=job.flow_id, is_awaited=job.is_awaited) for job in some
        ])  # fmt: skip

    def control(self) -> None:
        some = self.chance.sample(self.jobs, min(len(self.jobs), 2))
        verb = self.chance.choice(
            [self.engine.cancel, self.engine.discard, self.engine.delete, *[self.engine.retry] * 3]
        )
        verb(some)

    def control_flow(self) -> None:
        if self.flows:
            verb = self.chance.choice([self.engine.cancel_flow, self.engine.retry_flow, self.engine.close_flow])
            verb(self.chance.choice(self.flows))

    def rescue(self) -> None:
        self.worker.rescue([self.me])

    def settle(self) -> None:
        self.worker.settle()

    def prune(self) -> None:
        self.worker.prune(EVERYTHING, limit=100_000)

    def finish(self) -> None:
        """Run everything to its end."""
        for id in self.flows:
            self.engine.close_flow(id)
        self.worker.rescue([self.me])
        for _ in range(10_000):
            self.worker.settle()
            self.worker.stage(now=self.engine.now() + timedelta(days=3))
            claimed = self.worker.fetch("default", 100, self.me)
            if not claimed:
                return
            self.worker.ack([
                Ack(job.id, job.claim, JobState.COMPLETED, flow_id=job.flow_id, is_awaited=job.is_awaited) for job in claimed
            ])  # fmt: skip
        raise AssertionError("There is always another job.")


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_the_books_agree_and_everything_ends_and_can_be_deleted(engine, worker, me, seed):
    anyone, books = Anyone(engine, worker, me, seed), Books(engine)
    for _ in range(12):
        for _ in range(25):
            anyone.act()
        while worker.settle().is_full:
            pass
        books.audit()

    anyone.finish()

    books.audit()
    assert books.keys("waits:") == set()
    assert engine.flows(is_finished=False) == []
    for _ in range(20):
        worker.prune(EVERYTHING, limit=100_000)
        worker.settle()
    assert {key for key in books.keys("") if key.split(":")[0] not in LEFT} == set()
