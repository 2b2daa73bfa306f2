"""A Redis server whose memory is full takes no new jobs. All else goes on, or nothing would ever make room there again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import redis

from djqueue.contrib import embedded
from djqueue.cron.entry import CronDefinition, NewTick
from djqueue.engines.redis import RedisEngine
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, InsertedJob, NewJob, PruneRule, WorkerInfo
from djqueue.jobs.states import JobState
from tests import stores
from tests.roles import Roles


@pytest.fixture(scope="module", params=["valkey", "redis-server"])
def server(request: pytest.FixtureRequest) -> Iterator[embedded.ValkeyServer]:
    program = (
        None
        if request.param == "valkey"
        else shutil.which(request.param) or stores.missing("Redis 7 is not installed.")
    )
    with embedded.valkey(settings=stores.SETTINGS, program=program) as running:
        yield running


@pytest.fixture
def admin(server: embedded.ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.script_flush()
        yield client
        client.config_set("maxmemory", 0)


@pytest.fixture
def engine(server: embedded.ValkeyServer, admin: redis.Redis) -> Iterator[RedisEngine]:
    engine = RedisEngine(server.url)
    yield engine
    engine.close()


@pytest.fixture
def worker(engine: RedisEngine) -> Iterator[Roles]:
    with Roles(engine) as worker:
        yield worker


@contextmanager
def full(admin: redis.Redis) -> Iterator[None]:
    admin.config_set("maxmemory", 1)
    yield
    admin.config_set("maxmemory", 0)


def registered(worker: Roles) -> UUID:
    id = uuid4()
    worker.register([WorkerInfo(id=id, name="w", hostname="h", pid=1, queues={}, concurrency=1)])
    return id


def outcomes(controlled) -> set[ControlOutcome]:
    return {one.outcome for one in controlled}


def test_a_worker_begins_runs_what_waits_and_ends(engine, worker, admin):
    engine.insert([NewJob("t") for _ in range(5)])
    engine.insert([NewJob("t", queue="once")])
    with full(admin):
        me = registered(worker)
        assert [beat.worker for beat in worker.beat([me])] == [me]
        assert [beat.beat for beat in worker.beat([me])] == [1]
        done, failed, again, asleep, back = worker.fetch("default", 5, me)
        error = '{"type": "ValueError"}'
        assert worker.ack(
            [
                Ack(done.id, done.claim, JobState.COMPLETED, result='"kept"'),
                Ack(failed.id, failed.claim, JobState.DISCARDED, error=error),
                Ack(again.id, again.claim, JobState.RETRYABLE, error=error, delay=60.0),
                Ack(asleep.id, asleep.claim, JobState.SCHEDULED, delay=60.0, is_spent=False),
                Ack(back.id, back.claim, JobState.AVAILABLE, is_spent=False),
            ]
        ).accepted == {done.id, failed.id, again.id, asleep.id, back.id}
        [taken] = worker.take("once", 1, me)
        assert worker.ack([Ack(taken.id, taken.claim, JobState.COMPLETED, finished=1.0, taken=taken)]).accepted == {
            taken.id
        }
        worker.deregister([me])

        assert engine.get(done.id).result == "kept"
        assert engine.get(taken.id).state == JobState.COMPLETED
        assert engine.workers() == []


def test_the_leader_leads_stages_rescues_and_prunes(engine, worker, admin):
    now = engine.now()
    ended, executing = engine.insert([NewJob("t"), NewJob("t")])
    engine.insert([NewJob("t", queue="later", delay=timedelta(seconds=9))])
    me = registered(worker)
    [job] = worker.fetch("default", 1, me)
    worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)])
    worker.fetch("default", 1, me)
    with full(admin):
        holder = uuid4()
        lease = worker.elect(holder, 10.0, loops={"stager": 0.1})
        assert lease.is_held
        assert worker.stage(now=now + timedelta(seconds=20)).count == 1
        worker.bury({me: None})
        assert [beat.is_dead for beat in worker.beat([])] == [True]
        assert worker.rescue([me]).requeued == 1
        rules = [PruneRule(JobState.COMPLETED, max_age=timedelta(0))]
        assert worker.prune(rules, now=now + timedelta(days=1)).count == 1
        assert worker.prune_keys() == 0
        worker.resign(holder)
        assert worker.elect(uuid4(), 10.0).is_held

        assert engine.get(ended.id) is None
        assert engine.get(executing.id).state == JobState.AVAILABLE


def test_jobs_and_queues_are_controlled(engine, worker, admin):
    def insert(count: int = 1, **fields) -> list[InsertedJob]:
        return engine.insert([NewJob("t", queue="q", **fields) for _ in range(count)])

    [cancelled], [discarded], [deleted] = insert(), insert(unique_key="k"), insert()
    [executing] = engine.insert([NewJob("t")])
    me = registered(worker)
    worker.fetch("default", 1, me)
    with full(admin):
        assert outcomes(engine.cancel([cancelled.id])) == {ControlOutcome.CANCELLED}
        assert outcomes(engine.cancel([executing.id])) == {ControlOutcome.REQUESTED}
        assert len(worker.cancel_requested([executing.id])) == 1
        assert outcomes(engine.discard([discarded.id])) == {ControlOutcome.DISCARDED}
        assert outcomes(engine.retry([discarded.id])) == {ControlOutcome.RETRIED}
        assert outcomes(engine.delete([deleted.id])) == {ControlOutcome.DELETED}
        assert engine.pause("q")
        assert engine.resume("q")

        assert engine.count(JobFilter()).count == 3
        assert {count.queue for count in engine.counts()} == {"q", "default"}


def test_a_sleeper_is_marked_and_woken(engine, admin, caplog):
    [job] = engine.insert([NewJob("t")])
    engine.cancel([job.id])
    with full(admin), engine.open_listener() as listener:
        assert not listener.mark(["default"])
        assert listener.mark(["default"])
        engine.retry([job.id])

        assert listener.wait(10.0) == {"default"}
    assert caplog.text == ""


def test_the_crontab_changes_and_skips_and_only_its_jobs_are_refused(engine, admin):
    with full(admin):
        assert engine.cron.add("hourly", CronDefinition(task="t", expression="@hourly"))
        [entry] = engine.cron.entries()
        at = engine.now()
        engine.cron.plan(entry, at)
        [entry] = engine.cron.entries()
        with pytest.raises(EngineUnavailable):
            engine.cron.tick(NewTick(entry, at, at + timedelta(hours=1)), NewJob("t"))
        assert engine.cron.ticks(entry) == []
        ticked = engine.cron.tick(NewTick(entry, at, at + timedelta(hours=1), skip="missed"), None)
        assert (str(ticked.outcome), ticked.reason) == ("skipped", "missed")
        [entry] = engine.cron.entries()
        assert engine.cron.change(entry, entry.definition, code=None, is_paused=True)
        [entry] = engine.cron.entries()
        assert engine.cron.remove(entry)


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda engine: engine.insert([NewJob("t")]),
        lambda engine: engine.insert([NewJob("t")] * 2),
        lambda engine: engine.insert([NewJob("t", unique_key="k")] * 2),
        lambda engine: engine.insert_many(NewJob("t"), [("[]", "{}")] * 3),
        lambda engine: engine.reserve(3),
    ],
)
def test_an_enqueue_is_refused_with_a_sentence_that_says_what_to_do(engine, admin, enqueue):
    with full(admin):
        with pytest.raises(EngineUnavailable, match=r"is out of memory.*prunejobs.*maxmemory") as caught:
            enqueue(engine)
    assert "script" not in str(caught.value)

    enqueue(engine)
