"""Every internal loop, hit once by the end of its connection, goes on; and long jobs are nobody's to take."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection

from djqueue.engines.postgres import PostgresEngine
from djqueue.jobs.records import Ack, NewJob, PruneRule, WorkerInfo
from djqueue.jobs.states import JobState
from djqueue.maintenance.leader import Leader
from djqueue.maintenance.lifeline import Lifeline
from djqueue.maintenance.pruner import Pruner
from djqueue.maintenance.stager import Stager
from djqueue.models import FinishedJob, Job, Worker
from djqueue.runtime import heartbeat as heart_module
from djqueue.runtime.acker import Acker
from djqueue.runtime.cancels import Canceller
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.heartbeat import Heartbeats
from djqueue.runtime.producer import Producer
from djqueue.service import Service
from tests.processes import eventually
from tests.roles import Roles
from tests.runtime.held_lane import HeldLane

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def store() -> PostgresEngine:
    return PostgresEngine("default")


@pytest.fixture
def claims() -> Iterator[ClaimBlock]:
    block = ClaimBlock.create()
    block.record_beat()
    yield block
    block.close()


def _register(engine: Roles) -> UUID:
    worker = uuid4()
    engine.register([WorkerInfo(id=worker, name="test", hostname="here", pid=1, queues={}, concurrency=1)])
    return worker


class Led:
    """Whoever asks leads."""

    is_leader = True
    term = 1


def _producer(roles: Roles, claims: ClaimBlock) -> Service:
    lane = HeldLane(["default"], 1)
    acker = Acker(roles.fetcher, claims)
    worker = _register(roles)
    roles.registrar.close()  # the service under test closes only its own sessions
    return Producer(
        worker,
        roles.fetcher,
        roles.fetcher.open_listener(),
        [lane],
        acker,
        claims,
        Canceller(roles.fetcher, {}),
        poll_interval_seconds=0.1,
    )


def _prune(roles: Roles) -> Service:
    rule = PruneRule(JobState.COMPLETED, timedelta(days=1))
    return Pruner(roles.maintainer, [rule], is_leader=lambda: True)


def _stage(roles: Roles) -> Service:
    return Stager(roles.maintainer, roles.maintainer.open_listener(), is_leader=lambda: True)


LOOPS: dict[str, Callable[[Roles, ClaimBlock], Service]] = {
    "fetch": _producer,
    "ack": lambda roles, claims: Acker(roles.fetcher, claims),
    "beat": lambda roles, claims: Heartbeats(roles.registrar, on_dead=lambda worker: None),
    "lead": lambda roles, claims: Leader(roles.maintainer, uuid4()),
    "stage": lambda roles, claims: _stage(roles),
    "prune": lambda roles, claims: _prune(roles),
    "rescue": lambda roles, claims: Lifeline(roles.maintainer, Led(), silent=dict, dead=list),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", LOOPS)
def test_b56_a_loop_whose_connection_ends_works_again_within_ten_seconds(
    name: str, store: PostgresEngine, claims: ClaimBlock
) -> None:
    service = LOOPS[name](Roles(store), claims)
    engine = getattr(service, "_engine", None) or service._fetcher  # type: ignore[attr-defined]
    service.start()
    try:

        def work() -> None:
            if name == "ack":
                service.put(Ack(1, 1, JobState.COMPLETED), claims.hold(1, 1))  # type: ignore[attr-defined]
            elif name == "rescue":
                service._swept_at = -math.inf  # type: ignore[attr-defined]  # between two sweeps it does nothing for a minute
            service.wake()

        def backend() -> int:
            return 0 if engine._connection is None else engine._connection.info.backend_pid

        work()
        eventually(backend, 5)
        first = backend()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
        hit = time.monotonic()
        work()

        eventually(lambda: backend() not in (0, first) and service.last_success > hit, 10, lambda: service.failures)
        assert service.is_alive
    finally:
        service.stop()
        assert service.join(10)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_b36_a_job_that_runs_ten_times_longer_than_the_silence_is_started_once(
    store: PostgresEngine, claims: ClaimBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(heart_module, "time", clock)
    with Roles(store) as mine, Roles(store) as theirs:
        worker = _register(mine)
        beating = Heartbeats(mine, on_dead=lambda worker: None)
        beating.add(worker, claims)
        watching = Heartbeats(theirs, on_dead=lambda worker: None)
        lifeline = Lifeline(theirs, Led(), silent=watching.silent, dead=watching.dead)  # type: ignore[arg-type]
        store.insert([NewJob("tests.long")])
        [job] = mine.fetch("default", 1, worker)

        for _ in range(int(10 * heart_module.SILENT_SECONDS / heart_module.BEAT_SECONDS)):
            beating.run_once()
            watching.run_once()
            lifeline.run_once()
            clock.now += heart_module.BEAT_SECONDS
        assert mine.ack([Ack(job.id, job.claim, JobState.COMPLETED)]).accepted == {job.id}

        # And the other way round: without beats it would not have lasted.
        store.insert([NewJob("tests.long")])
        mine.fetch("default", 1, worker)
        for _ in range(7):
            watching.run_once()
            lifeline.run_once()
            clock.now += heart_module.BEAT_SECONDS
        assert Job.objects.get().state == "available"
        assert Worker.objects.get().died_at is not None


def test_b89_acking_staging_and_rescuing_the_same_rows_shows_nobody_a_deadlock(store: PostgresEngine) -> None:
    seconds, rows = 8.0, 3000
    store.insert([NewJob("tests.task") for _ in range(rows)])
    connection.close()
    stop = threading.Event()
    errors: list[Exception] = []

    def loop(work: Callable[[Roles], object]) -> None:
        try:
            with Roles(store) as engine:
                while not stop.is_set():
                    work(engine)
        except Exception as error:
            errors.append(error)

    with Roles(store) as engine:
        workers = [_register(engine) for _ in range(2)]
    last = [JobState.COMPLETED, JobState.RETRYABLE, JobState.SCHEDULED, JobState.AVAILABLE]

    def drain(worker: UUID) -> Callable[[Roles], object]:
        def work(engine: Roles) -> None:
            jobs = engine.fetch("default", 200, worker)
            acks = []
            for job in reversed(jobs):
                state = last[job.id % 40 and 1 + job.id % 3]
                waits = state in (JobState.RETRYABLE, JobState.SCHEDULED)
                acks.append(Ack(job.id, job.claim, state, delay=waits * (job.id % 2) / 10))
            engine.ack(acks)

        return work

    acts: list[Callable[[Roles], object]] = [
        *(drain(worker) for worker in workers),
        lambda engine: engine.stage(1000),
        lambda engine: engine.stage(1000),
        lambda engine: engine.rescue(workers, ran={}, limit=500),
        lambda engine: engine.rescue(list(reversed(workers)), limit=500),
        lambda engine: engine.rescue_ownerless(),
        lambda engine: engine.beat(workers),
        lambda engine: engine.beat(list(reversed(workers))),
    ]
    threads = [threading.Thread(target=loop, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    time.sleep(seconds)  # as long as the race is run
    stop.set()
    for thread in threads:
        thread.join()

    # Two acks of which each has claims that the other has taken over may meet; the server ends one, and it tries again.
    assert errors == []
    assert Job.objects.count() + FinishedJob.objects.count() == rows
