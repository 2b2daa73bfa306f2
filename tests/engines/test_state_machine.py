"""Random sequences of verbs on an engine, compared after each step with a model of a few lines.

The model knows each job's state, attempt and claim, and every claim that anybody ever got. No claim is accepted twice,
no job is in two places, no attempt is spent that was not started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from djqueue.engines.protocol import Engine
from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, NewJob, WorkerInfo
from djqueue.jobs.states import FINAL_STATES, JobState
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

START = datetime(2030, 1, 1, tzinfo=UTC)
QUEUES = st.sampled_from(["a", "b"])
OUTCOMES = ["completed", "discarded", "cancelled", "retryable", "scheduled", "available"]
PICK = st.integers(0, 10**6)
"""Chooses among what there is: taken modulo its number."""


@dataclass
class Modelled:
    id: int
    queue: str
    priority: int
    state: str
    max_attempts: int
    ready: datetime | None
    due: datetime | None
    key: str | None
    attempt: int = 0
    claim: int = 0
    owner: UUID | None = None
    is_cancel_requested: bool = False

    @property
    def is_final(self) -> bool:
        return JobState(self.state) in FINAL_STATES


@dataclass(frozen=True)
class Claimed:
    job: int
    claim: int
    worker: UUID


@dataclass
class Model:
    now: datetime = START
    jobs: dict[int, Modelled] = field(default_factory=dict)
    claims: list[Claimed] = field(default_factory=list)
    accepted: set[tuple[int, int]] = field(default_factory=set)
    workers: dict[UUID, bool] = field(default_factory=dict)
    """Whether it lives."""
    paused: set[str] = field(default_factory=set)


class Machine(RuleBasedStateMachine):
    engine: Engine
    empty: Callable[[], None]

    def __init__(self) -> None:
        super().__init__()
        self.worker_engine = Roles(self.engine)
        self.model = Model()
        for _ in range(2):
            self.register()

    def teardown(self) -> None:
        self.worker_engine.close()
        self.empty()

    @initialize(count=st.integers(1, 6))
    def fill(self, count: int) -> None:
        for number in range(count):
            self.enqueue("ab"[number % 2], 0, None, 1 + number % 3, None)

    # What users do

    @rule(
        queue=QUEUES,
        priority=st.integers(-1, 1),
        delay=st.sampled_from([None, 5]),
        max_attempts=st.integers(1, 3),
        key=st.sampled_from([None, None, "k", "l"]),
    )
    def enqueue(self, queue: str, priority: int, delay: int | None, max_attempts: int, key: str | None) -> None:
        model, now = self.model, self._tick()
        wait = None if delay is None else timedelta(seconds=delay)
        new = NewJob(
            "tests.task", queue=queue, priority=priority, delay=wait, max_attempts=max_attempts, unique_key=key
        )

        [inserted] = self.engine.insert([new], now=now)

        holder = self._holder(key)
        assert inserted.was_duplicate == (holder is not None)
        if holder is not None:
            assert inserted.id == holder.id
            return
        assert inserted.id not in model.jobs
        state = "available" if wait is None else "scheduled"
        model.jobs[inserted.id] = Modelled(
            inserted.id,
            queue,
            priority,
            state,
            max_attempts,
            now if wait is None else None,
            None if wait is None else now + wait,
            key,
        )

    @precondition(lambda self: self.model.jobs)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        job = self._job(pick)

        [controlled] = self.engine.cancel([job.id], reason="no", now=self._tick())

        if job.is_final:
            assert controlled.outcome is ControlOutcome.SKIPPED
        elif job.state == "executing":
            assert controlled.outcome is ControlOutcome.REQUESTED
            job.is_cancel_requested = True
        else:
            assert controlled.outcome is ControlOutcome.CANCELLED
            job.state = "cancelled"

    @precondition(lambda self: self.model.jobs)
    @rule(pick=PICK)
    def retry(self, pick: int) -> None:
        job, now = self._job(pick), self._tick()

        [controlled] = self.engine.retry([job.id], now=now)

        if job.is_final and self._holder(job.key) is None:
            job.is_cancel_requested = False
        elif job.state not in ("scheduled", "retryable"):
            assert controlled.outcome is ControlOutcome.SKIPPED
            return
        assert controlled.outcome is ControlOutcome.RETRIED
        job.state, job.ready, job.due = "available", now, None
        job.max_attempts = max(job.max_attempts, job.attempt + 1)

    @precondition(lambda self: not self.model.paused)
    @rule(queue=QUEUES)
    def pause(self, queue: str) -> None:
        assert self.engine.pause(queue) == (queue not in self.model.paused)
        self.model.paused.add(queue)

    @precondition(lambda self: self.model.paused)
    @rule(queue=QUEUES)
    def resume(self, queue: str) -> None:
        assert self.engine.resume(queue) == (queue in self.model.paused)
        self.model.paused.discard(queue)

    # What workers do

    def register(self) -> None:
        worker = uuid4()
        self.worker_engine.register(
            [WorkerInfo(id=worker, name="model", hostname="here", pid=1, queues={}, concurrency=1)]
        )
        self.model.workers[worker] = True

    @rule(
        steps=st.lists(
            st.tuples(st.sampled_from("ffffaaaaarr"), PICK, QUEUES, st.sampled_from(OUTCOMES), st.booleans()),
            min_size=4,
            max_size=10,
        )
    )
    def work(self, steps: list[tuple[str, int, str, str, bool]]) -> None:
        """Fetch, ack and rescue, which make sense one after the other only."""
        for verb, pick, queue, outcome, flag in steps:
            if verb == "f":
                self.fetch(queue, 1 + pick % 3, pick)
            elif verb == "r":
                self.rescue(pick, flag, pick % 2 == 0)
            elif self.model.claims:
                self.ack(pick, outcome, 5 * flag)
            self.the_store_agrees()

    @rule(queue=QUEUES, limit=st.integers(1, 4), pick=PICK)
    def fetch(self, queue: str, limit: int, pick: int) -> None:
        model, worker = self.model, self._worker(pick)

        fetched = self.worker_engine.fetch(queue, limit, worker, now=self._tick())

        waiting = [job for job in model.jobs.values() if job.queue == queue and job.state == "available"]
        # Of those that became available together, staged at one moment, each engine has an order of its own.
        turns = sorted((-job.priority, job.ready) for job in waiting)
        expected = turns[:limit] if model.workers[worker] and queue not in model.paused else []
        claimed = [model.jobs[got.id] for got in fetched]
        assert all(job in waiting for job in claimed)
        assert [(-job.priority, job.ready) for job in claimed] == expected
        for got, job in zip(fetched, claimed, strict=True):
            job.state, job.owner = "executing", worker
            job.attempt += 1
            assert got.attempt == job.attempt
            assert got.claim > job.claim
            job.claim = got.claim
            model.claims.append(Claimed(job.id, job.claim, worker))

    @precondition(lambda self: self.model.claims)
    @rule(
        pick=PICK,
        state=st.sampled_from(OUTCOMES),
        delay=st.sampled_from([0, 5]),
    )
    def ack(self, pick: int, state: str, delay: int) -> None:
        """By whoever ever had a claim, stale or not: the fence decides."""
        # Claims of what executes now, theirs and those before them, are what a fence can be wrong about.
        running = [one for one in self.model.claims if self.model.jobs[one.job].state == "executing"]
        claims = running or self.model.claims
        claimed = claims[pick % len(claims)]
        job, now = self.model.jobs[claimed.job], self._tick()
        if state == "retryable" and job.attempt >= job.max_attempts:
            state = "discarded"  # whoever executes a job knows that this was its last attempt
        is_spent = state not in ("scheduled", "available")
        wait = delay if state in ("retryable", "scheduled") else 0
        ack = Ack(claimed.job, claimed.claim, JobState(state), delay=float(wait), is_spent=is_spent)

        accepted = self.worker_engine.ack([ack], now=now).accepted

        is_valid = job.state == "executing" and job.claim == claimed.claim
        assert accepted == ({job.id} if is_valid else set())
        if not is_valid:
            return
        assert (job.id, job.claim) not in self.model.accepted
        self.model.accepted.add((job.id, job.claim))
        if not is_spent:
            job.attempt -= 1
        if JobState(state) in FINAL_STATES:
            job.state = state
        elif job.is_cancel_requested:
            job.state = "cancelled"
        elif wait:
            job.state, job.ready, job.due = state, None, now + timedelta(seconds=wait)
        else:
            job.ready = job.ready if state == "available" else now
            job.state = "available"

    # What maintenance does

    @rule(seconds=st.integers(0, 6))
    def stage(self, seconds: int) -> None:
        self.model.now += timedelta(seconds=seconds)
        now = self._tick()

        staged = self.worker_engine.stage(now=now)

        due = [job for job in self.model.jobs.values() if self._waits(job) and job.due is not None and job.due <= now]
        assert staged.count == len(due)
        for job in due:
            job.state, job.ready = "available", now

    @rule(pick=PICK, knows=st.booleans(), is_dead=st.booleans())
    def rescue(self, pick: int, knows: bool, is_dead: bool) -> None:
        """Of a dead worker, with or without knowing what ran; or of one that lives and has lost an answer."""
        worker = self._worker(pick)
        held = [job for job in self.model.jobs.values() if job.state == "executing" and job.owner == worker]
        half = {job.id: job.claim for job in held[::2]}
        if is_dead:
            self.worker_engine.bury({worker: None})
            self.model.workers[worker] = False
            self.register()
            rescued = self.worker_engine.rescue([worker], ran=half if knows else None, now=self._tick())
        else:
            rescued = self.worker_engine.reclaim(worker, half, now=self._tick())
            held = [job for job in held if job.id not in half]

        assert rescued.count == len(held)
        for job in held:
            has_run = is_dead and (not knows or job.id in half)
            if job.is_cancel_requested:
                job.state = "cancelled"
            elif has_run and job.attempt >= job.max_attempts:
                job.state = "discarded"
            else:
                job.state = "available"
            job.attempt -= not has_run

    @rule()
    def rescue_ownerless(self) -> None:
        assert self.worker_engine.rescue_ownerless(now=self._tick()).count == 0

    # What is always true

    @invariant()
    def the_store_agrees(self) -> None:
        for job in self.model.jobs.values():
            stored = self.engine.get(job.id)
            assert stored is not None, "lost"
            assert (stored.state, stored.attempt, stored.claim, stored.max_attempts) == (
                job.state, job.attempt, job.claim, job.max_attempts,
            )  # fmt: skip
        assert self.engine.count(JobFilter()).count == len(self.model.jobs), "in two places, or in none"
        for job in self.model.jobs.values():
            assert 0 <= job.attempt <= job.max_attempts

    def _tick(self) -> datetime:
        self.model.now += timedelta(milliseconds=1)
        return self.model.now

    def _job(self, pick: int) -> Modelled:
        jobs = list(self.model.jobs.values())
        return jobs[pick % len(jobs)]

    def _worker(self, pick: int) -> UUID:
        """One of the living, mostly."""
        living = [worker for worker, lives in self.model.workers.items() if lives]
        workers = list(self.model.workers) if pick % 8 == 7 or not living else living
        return workers[pick // 8 % len(workers)]

    def _holder(self, key: str | None) -> Modelled | None:
        live = (job for job in self.model.jobs.values() if key is not None and job.key == key and not job.is_final)
        return next(live, None)

    @staticmethod
    def _waits(job: Modelled) -> bool:
        return job.state in ("scheduled", "retryable")


@pytest.mark.timeout(120)
def test_no_sequence_of_verbs_loses_a_job_or_accepts_a_claim_twice(engine: Engine, empty: Callable[[], None]) -> None:
    machine = type("EngineMachine", (Machine,), {"engine": engine, "empty": staticmethod(empty)})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )
