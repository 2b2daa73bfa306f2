"""The books of the Redis engine: whatever happens, each job stands in one place, and what is counted and held agrees with it."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from djqueue.engines.redis import RedisEngine
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import LIVE_ONLY, Ack, ClaimedJob, NewJob, PruneRule, UniqueRule
from djqueue.jobs.states import FINAL_STATES, JobState
from tests.roles import Roles

QUEUES = ("a", "b")
RULES = (
    LIVE_ONLY,
    UniqueRule(replace=True),
    UniqueRule(reschedule=True),
    UniqueRule(replace=True, reschedule=True, follow_up=True),
    UniqueRule(follow_up=True),
    UniqueRule(follow_up=True),
    UniqueRule(window=timedelta(milliseconds=50)),
    UniqueRule(holds_completed=True),
    UniqueRule(holds_completed=True, window=timedelta(milliseconds=50)),
)
OUTCOMES = (JobState.COMPLETED, JobState.DISCARDED, JobState.CANCELLED, JobState.RETRYABLE, JobState.SCHEDULED)

pytestmark = pytest.mark.parametrize("engine", ["valkey", "redis7"], indirect=True)


def audit(engine: RedisEngine) -> Counter[str]:
    """Compare all keys with each other; return how many jobs there are by state."""
    client = engine.client
    prefix = client.key.decode()
    keys = {key.decode().removeprefix(prefix) for key in client.command("KEYS", f"{prefix}*")}

    def command(*args: str) -> list[str]:
        answer = client.command(args[0], prefix + args[1], *args[2:])
        return [each.decode() if isinstance(each, bytes) else each for each in answer]

    def ids(kind: str) -> set[int]:
        return {int(key.removeprefix(f"{kind}:")) for key in keys if key.startswith(f"{kind}:")}

    marked = set()
    for block in ids("ids"):
        bits = client.command("GET", f"{prefix}ids:{block}")
        marked |= {
            block * 32768 + 8 * at + bit for at, byte in enumerate(bits) for bit in range(8) if byte & 128 >> bit
        }
    stored = ids("job")
    assert stored == marked
    assert ids("run") <= stored
    assert {f"ids:{block}" for block in command("ZRANGE", "blocks", "0", "-1")} == {
        key for key in keys if key.startswith("ids:")
    }
    jobs = {id: job for id in stored if (job := engine.get(id)) is not None}

    places = Counter[int]()
    waiting = Counter[str]()
    states = Counter[str]()
    ready = {queue: {int(id) for id in command("ZRANGE", f"ready:{queue}", "0", "-1")} for queue in QUEUES}
    due = {int(member[1:]) for member in command("ZRANGE", "due", "0", "-1")}
    executing = {int(id) for id in command("HKEYS", "executing")}
    finished = {int(id) for id in command("ZRANGE", "finished", "0", "-1")}
    for place in (*ready.values(), due, executing, finished):
        places.update(place)
    for id, job in jobs.items():
        states[job.state] += 1
        expected = {
            "available": ready[job.queue],
            "scheduled": due,
            "retryable": due,
            "executing": executing,
        }.get(job.state, finished if job.state in FINAL_STATES else None)
        assert expected is None or id in expected, (id, job.state)
        assert places[id] == (expected is not None), (id, job.state)
        if job.state in ("scheduled", "retryable", "suspended"):
            waiting[f"{['scheduled', '', '', 'retryable', 'suspended'].index(job.state) + 1}\n{job.queue}"] += 1
    assert set(places) <= set(jobs)
    pairs = command("HGETALL", "waiting")
    assert {name: int(count) for name, count in zip(pairs[::2], pairs[1::2], strict=True)} == waiting

    held = {
        key.removeprefix("unique:"): client.command("GET", prefix + key).decode()
        for key in keys
        if key.startswith("unique:")
    }
    live = {key: int(text.split("|")[0]) for key, text in held.items() if text.split("|")[0]}
    wanted = {}
    for id, job in jobs.items():
        if job.unique_key is not None and job.state not in FINAL_STATES:
            key = f"{job.unique_key}:next" if job.state == "suspended" else job.unique_key
            assert key not in wanted, "two live jobs hold one key"
            wanted[key] = id
    assert live == wanted
    beyond = {key for key, text in held.items() if text.split("|")[1]}
    assert beyond == {*command("ZRANGE", "holds", "0", "-1"), *command("ZRANGE", "holds:kept", "0", "-1")}
    return states


class Somebody:
    """One who does whatever comes to mind."""

    def __init__(self, engine: RedisEngine, worker: Roles, me: UUID, seed: int) -> None:
        self.engine, self.worker, self.me = engine, worker, me
        self.chance = random.Random(seed)
        self.claimed: list[ClaimedJob] = []

    def act(self) -> None:
        self.chance.choices(
            [self.insert, self.fetch, self.ack, self.stage, self.control, self.rescue, self.prune],
            [6, 4, 6, 1, 5, 1, 1],
        )[0]()

    def insert(self) -> None:
        chance = self.chance
        jobs = [
            NewJob(
                "tests.task",
                args=f"[{chance.random()}]",
                queue=chance.choice(QUEUES),
                priority=chance.choice([0, 5]),
                meta=chance.choice(["{}", '{"a": 1}', '{"b": {"c": "}"}}']),
                delay=chance.choice([None, None, timedelta(milliseconds=1), timedelta(hours=1)]),
                unique_key=chance.choice([None, "k", "l", "m"]),
                max_attempts=chance.choice([1, 3]),
            )
            for _ in range(chance.randint(1, 4))
        ]
        answers = self.engine.insert(jobs, rule=chance.choice(RULES))
        assert len(answers) == len(jobs)

    def fetch(self) -> None:
        self.claimed += self.worker.fetch(self.chance.choice(QUEUES), self.chance.randint(1, 3), self.me)

    def ack(self) -> None:
        count = min(len(self.claimed), self.chance.randint(1, 3))
        some = [self.claimed.pop(self.chance.randrange(len(self.claimed))) for _ in range(count)]
        self.worker.ack(
            [
                Ack(
                    job.id,
                    job.claim,
                    self.chance.choice(OUTCOMES),
                    delay=self.chance.choice([0.0, 0.001, 60.0]),
                    started=self.chance.choice([None, 1.0]),
                    note=self.chance.choice([None, '{"note": [1]}']),
                )
                for job in some
            ]
        )

    def stage(self) -> None:
        self.worker.stage()

    def control(self) -> None:
        ids = [job.id for job in self.engine.newest(JobFilter(), limit=30).jobs]
        some = self.chance.sample(ids, min(len(ids), self.chance.randint(1, 5)))
        verb = self.chance.choice([self.engine.cancel, self.engine.retry, self.engine.discard, self.engine.delete])
        assert [one.id for one in verb(some)] == some

    def rescue(self) -> None:
        ran = {job.id: job.claim for job in self.claimed if self.chance.random() < 0.5}
        self.worker.rescue([self.me], ran=self.chance.choice([None, ran]))

    def prune(self) -> None:
        self.worker.prune([PruneRule(state, max_count=3) for state in FINAL_STATES])
        self.worker.prune_keys()


@pytest.mark.parametrize("seed", range(4))
def test_one_who_does_whatever_comes_to_mind_leaves_the_books_in_order(
    engine: RedisEngine, worker: Roles, me: UUID, seed: int
) -> None:
    somebody = Somebody(engine, worker, me, seed)

    # Few jobs ever wait for another. Which states come up depends on the store's clock, so there are more turns when one is missing.
    wanted = {*JobState} - {JobState.SUSPENDED}
    seen = Counter[str]()
    for turn in range(500):
        for _ in range(5):
            somebody.act()
        seen += audit(engine)
        if turn >= 100 and set(seen) >= wanted:
            break

    assert set(seen) >= wanted


def test_so_do_many_at_once(
    engine: RedisEngine, open_worker: Callable[[], Roles], register: Callable[[], UUID]
) -> None:
    errors: list[BaseException] = []

    def run(seed: int, worker: Roles, me: UUID) -> None:
        try:
            somebody = Somebody(engine, worker, me, seed)
            for _ in range(300):
                somebody.act()
        except BaseException as error:
            errors.append(error)
        finally:
            engine.close()

    threads = [threading.Thread(target=run, args=(seed, open_worker(), register())) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert errors == []
    assert sum(audit(engine).values()) > 0
    assert {queue.queue for queue in engine.counts()} <= set(QUEUES)


def test_without_memory_a_verb_does_all_of_it_or_nothing(engine: RedisEngine, worker: Roles, me: UUID) -> None:
    somebody = Somebody(engine, worker, me, 3)
    refused = 0

    try:
        for turn in range(300):
            # Room for a while, and none for a while.
            engine.client.command("CONFIG", "SET", "maxmemory", str(int(turn % 3 != 0)))
            try:
                somebody.act()
            except EngineUnavailable as error:
                refused += "is out of memory" in str(error)
            if turn % 10 == 9:
                audit(engine)
    finally:
        engine.client.command("CONFIG", "SET", "maxmemory", "0")

    assert refused > 10
    audit(engine)


def test_nothing_is_left_when_all_is_over(engine: RedisEngine, worker: Roles, me: UUID) -> None:
    somebody = Somebody(engine, worker, me, 7)
    for _ in range(300):
        somebody.act()

    worker.rescue([me])
    engine.delete([job.id for job in engine.newest(JobFilter(), limit=1000).jobs])
    worker.prune_keys(now=engine.now() + timedelta(days=1))

    prefix = engine.client.key.decode()
    left = {key.decode().removeprefix(prefix) for key in engine.client.command("KEYS", f"{prefix}*")}
    assert left <= {"seq", "server", "queues", "workers", "beats"}


def test_the_audit_would_notice(engine: RedisEngine) -> None:
    [job] = engine.insert([NewJob("tests.task", queue="a", delay=timedelta(hours=1), unique_key="k")])
    audit(engine)

    for key, command in (
        (b"due", ("ZREM", chr(64 + len(str(job.id))) + str(job.id))),
        (b"waiting", ("HINCRBY", "1\na", "1")),
        (b"unique:k", ("DEL",)),
    ):
        saved = engine.client.command("DUMP", engine.client.key + key)
        engine.client.command(command[0], engine.client.key + key, *command[1:])
        with pytest.raises(AssertionError):
            audit(engine)
        engine.client.command("RESTORE", engine.client.key + key, 0, saved, "REPLACE")
        audit(engine)


def test_meta_is_merged_as_it_was_written(engine: RedisEngine, worker: Roles, me: UUID) -> None:
    metas = [
        '{"a":1.50,"b":{"c":[1,2,{"}":"]"}]},"d\\"e":"x,y:{"}',
        '{"b":[],"f":1e400,"g":123456789012345678901234567890}',
        '{ "d\\"e" : {} , "h" : "\\\\" }',
        "{}",
    ]
    for meta in metas:
        engine.insert([NewJob("tests.task", queue="a", unique_key="k", meta=meta)], rule=UniqueRule(replace=True))

    [job] = worker.fetch("a", 1, me)

    assert job.meta == (
        '{"a":1.50,"b":[],"d\\"e": {} ,"f":1e400,"g":123456789012345678901234567890, "h" : "\\\\" }'.replace(
            ', "h" : "\\\\" }', ',"h": "\\\\" }'
        )
    )


def test_msgpack_of_lua_and_python_agree_on_long_texts(engine: RedisEngine, worker: Roles, me: UUID) -> None:
    for size in (31, 32, 255, 256, 65_535, 65_536):
        rule = UniqueRule(replace=True)
        for args in ("[]", f'["{"ä" * size}"]'):
            meta = f'{{"m": "{"x" * size}"}}'
            engine.insert([NewJob("t" * 200, args, queue="a", unique_key=f"k{size}", meta=meta)], rule=rule)

        [job] = worker.fetch("a", 1, me)

        assert (job.args, job.meta) == (args, meta)


def test_names_of_any_length_are_found_controlled_and_forgotten(engine: RedisEngine) -> None:
    long = [NewJob("t" * size, f'["{"x" * 3000}"]', queue="a", unique_key="k" * size) for size in (1000, 2500, 9000)]
    ids = [job.id for job in engine.insert(long)]

    assert engine.find(JobFilter(task="t" * 9000), last=ids[-1]) == ids[2:]
    assert engine.find(JobFilter(), last=ids[-1]) == ids
    assert all(one.is_done for one in engine.discard(ids))
    audit(engine)
    with Roles(engine) as worker:
        rules = [PruneRule(JobState.DISCARDED, timedelta(0), queue="a")]
        assert worker.prune(rules, now=engine.now() + timedelta(days=1)).count == 3
    audit(engine)
