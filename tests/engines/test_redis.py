"""What can happen to a Redis server, its answers and the connections to it, and what a Redis engine makes of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from urllib.parse import urlsplit
from uuid import uuid4

import msgpack
import pytest
import redis

from djqueue.contrib import embedded
from djqueue.contrib.embedded import process
from djqueue.engines.redis import RedisEngine, client, codec
from djqueue.engines.redis.scripts import script
from djqueue.exceptions import EngineRefused, EngineUnavailable
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, NewJob, UniqueRule, WorkerInfo
from djqueue.jobs.states import JobState
from tests import stores
from tests.proxy import Proxy, proxy
from tests.roles import Roles

LONG = 10.0
"""Seconds that no wake-up may need."""


@pytest.fixture(scope="module", params=["valkey", "redis-server"])
def server(request: pytest.FixtureRequest) -> Iterator[embedded.ValkeyServer]:
    """A server that a test may do anything to, as long as it undoes it."""
    program = (
        None
        if request.param == "valkey"
        else shutil.which(request.param) or stores.missing("Redis 7 is not installed.")
    )
    with embedded.valkey(settings=stores.SETTINGS, program=program) as running:
        yield running


@pytest.fixture
def admin(server: embedded.ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as connection:
        connection.flushall()
        connection.config_resetstat()
        yield connection


@pytest.fixture
def engine(server: embedded.ValkeyServer, admin: redis.Redis) -> Iterator[RedisEngine]:
    engine = RedisEngine(server.url)
    yield engine
    engine.close()


@pytest.fixture
def relay(server: embedded.ValkeyServer) -> Iterator[Proxy]:
    assert server.port is not None
    with proxy("127.0.0.1", server.port) as running:
        yield running


@pytest.fixture
def far(server: embedded.ValkeyServer, admin: redis.Redis, relay: Proxy) -> Iterator[RedisEngine]:
    """An engine behind the relay, which does not wait for an answer for long."""
    engine = RedisEngine(through(server.url, relay), answer_timeout_seconds=0.5)
    yield engine
    engine.close()


def through(url: str, relay: Proxy) -> str:
    return url.replace(f":{urlsplit(url).port}/", f":{relay.port}/")


@contextmanager
def a_worker(engine: RedisEngine) -> Iterator[tuple]:
    with Roles(engine) as worker:
        id = uuid4()
        worker.register([WorkerInfo(id=id, name="w", hostname="h", pid=1, queues={}, concurrency=1)])
        yield worker, id


def completed(*jobs, **fields) -> list[Ack]:
    return [Ack(job.id, job.claim, JobState.COMPLETED, **fields) for job in jobs]


def keys(admin: redis.Redis) -> dict[bytes, bytes]:
    """Everything that is stored."""
    return {key: admin.dump(key) for key in admin.scan_iter(count=1000)}


class TestScripts:
    def test_a_server_that_forgot_the_scripts_is_told_them_again(self, engine, admin):
        engine.insert([NewJob("t")])
        admin.script_flush()

        [job] = engine.insert([NewJob("t")])

        assert engine.get(job.id) is not None

    def test_also_in_the_middle_of_what_is_done_all_or_not_at_all(self, engine, admin):
        engine.insert_many(NewJob("t"), [("[]", "{}")] * 2500)
        admin.script_flush()

        many = engine.insert_many(NewJob("t"), [("[]", "{}")] * 2500)

        assert list(many.ids) == list(range(2501, 5001))
        assert engine.counts()[0].states == {"available": 5000}

    def test_a_script_has_what_it_uses_and_no_more(self):
        text = script("insert").text.decode()

        assert "local function flush(" in text
        assert "local function may_fetch(" not in text
        assert "local function" not in script("insert_one").text.decode()


class TestConnection:
    def test_one_that_ended_while_it_rested_is_replaced_unnoticed(self, engine, admin, monkeypatch):
        monkeypatch.setattr(client, "_LOOK_AFTER_SECONDS", -1.0)
        engine.insert([NewJob("t")])
        admin.client_kill_filter(_type="normal", skipme=True)

        engine.insert([NewJob("t")])

        assert engine.counts()[0].states == {"available": 2}

    def test_one_that_is_lost_without_an_answer_is_said_so_and_the_next_verb_has_another(self, far, relay):
        [job] = far.insert([NewJob("t")])
        relay.swallow()

        with pytest.raises(EngineUnavailable, match="did not answer"):
            far.insert([NewJob("t")])

        relay.flow()
        assert far.get(job.id) is not None

    def test_a_fetch_that_was_done_though_nobody_heard_of_it_is_settled_by_a_rescue(self, far, engine, relay):
        far.insert([NewJob("t")])
        with a_worker(far) as (worker, me):
            worker.fetch("other", 1, me)  # connects
            relay.swallow()
            with pytest.raises(EngineUnavailable):
                worker.fetch("default", 1, me)
            relay.flow()
            while engine.counts()[0].states != {"executing": 1}:
                pass  # what was swallowed comes late

            rescued = worker.reclaim(me, {})

        assert rescued.requeued == 1
        assert engine.counts()[0].states == {"available": 1}

    def test_a_verb_that_is_interrupted_leaves_no_answer_for_the_next(self, engine, monkeypatch):
        engine.insert([NewJob("t")])
        receive = client.Client._receive

        def interrupted(self):
            monkeypatch.setattr(client.Client, "_receive", receive)
            raise KeyboardInterrupt

        monkeypatch.setattr(client.Client, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.reserve(7)

        assert engine.get(1).task == "t"

    def test_nothing_listens_there(self, server):
        refused = RedisEngine("redis://127.0.0.1:1/0")

        with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
            refused.insert([NewJob("t")])

    def test_a_wrong_password_is_said_so(self, server):
        refused = RedisEngine(f"redis://:wrong@127.0.0.1:{server.port}/0")

        with pytest.raises(EngineUnavailable, match=r"(?i)password"):
            refused.counts()

    def test_threads_have_one_each_and_no_id_twice(self, engine, admin):
        found: list[int] = []

        def work() -> None:
            for _ in range(100):
                found.extend(job.id for job in engine.insert([NewJob("t")]))
            engine.close()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(set(found)) == 400

    def test_a_fork_has_another_than_its_parent(self, engine, server):
        """In a process of its own, for this one has threads."""
        program = f"""
import os
from djqueue.engines.redis import RedisEngine
from djqueue.jobs.records import NewJob
engine = RedisEngine({server.url!r})
engine.insert([NewJob("parent")])
child = os.fork()
ids = [engine.insert([NewJob("child" if child == 0 else "parent")])[0].id for _ in range(300)]
wrong = [id for id in ids if engine.get(id).task != ("child" if child == 0 else "parent")]
if child == 0:
    os._exit(len(wrong))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(wrong) == 0
"""
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}

        subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=60)

        assert engine.counts()[0].states == {"available": 601}

    def test_a_socket_in_the_file_system_will_do(self):
        settings = {**stores.SETTINGS, "unixsocket": "socket", "unixsocketperm": 777}
        with embedded.valkey(settings=settings) as server:
            parts = urlsplit(server.url)
            engine = RedisEngine(f"unix://:{parts.password}@{server.data_directory}/socket?db=3")

            engine.insert([NewJob("t")])

            assert engine.counts()[0].states == {"available": 1}
            with redis.Redis(port=server.port, password=parts.password, db=3) as admin:
                assert admin.dbsize() > 0
            engine.close()

    def test_an_encrypted_one_is_checked_and_works(self, tmp_path):
        program, openssl = shutil.which("redis-server"), shutil.which("openssl")
        if program is None or openssl is None:
            stores.missing("A Redis that speaks TLS, or openssl, is not installed.")
        with embedded.valkey(settings=stores.SETTINGS, program=program) as server:
            certificate, key = server.data_directory / "certificate", server.data_directory / "key"
            names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
            files = ["-out", certificate, "-keyout", key]
            subprocess.run(
                [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *files],
                check=True,
                capture_output=True,
            )
            key.chmod(0o644)
            port = process.free_port()
            with redis.Redis.from_url(server.url) as admin:
                files = ["tls-cert-file", certificate, "tls-key-file", key, "tls-ca-cert-file", certificate]
                admin.execute_command("CONFIG SET", *map(str, files), "tls-auth-clients", "no", "tls-port", port)
            url = f"rediss://:{urlsplit(server.url).password}@127.0.0.1:{port}/0"

            with pytest.raises(EngineUnavailable, match="certificate"):
                RedisEngine(url).insert([NewJob("t")])
            engine = RedisEngine(f"{url}?ssl_ca_certs={certificate}")
            engine.insert_many(NewJob("t", args=json.dumps("x" * 1000)), [("[]", "{}")] * 3000)
            with engine.open_listener() as listener, a_worker(engine) as (worker, me):
                assert len(worker.fetch("default", 3000, me)) == 3000
                listener.mark(["default"])
                engine.insert([NewJob("t")])
                assert listener.wait(LONG) == {"default"}
            engine.close()


class TestServer:
    def test_one_that_restarts_keeps_what_reached_its_disk(self):
        with embedded.valkey(settings={"appendfsync": "always"}) as server:
            assert server.port is not None
            with proxy("127.0.0.1", server.port) as relay:
                engine = RedisEngine(through(server.url, relay))
                with a_worker(engine) as (worker, me):
                    engine.insert([NewJob("t"), NewJob("t")])
                    [first] = worker.fetch("default", 1, me)
                    server.stop("immediate")

                    with pytest.raises(EngineUnavailable):
                        worker.ack(completed(first))

                    server.start()
                    relay._target = ("127.0.0.1", server.port)
                    assert worker.ack(completed(first)).accepted == {first.id}
                    assert len(worker.fetch("default", 5, me)) == 1
                engine.close()

    def test_one_that_lost_its_last_second_gives_no_id_again(self):
        with embedded.valkey() as server, closing(RedisEngine(server.url)) as engine:
            kept = engine.insert([NewJob("tests.task") for _ in range(3)])
            log = next(server.data_directory.glob("appendonlydir/*.incr.aof"))
            length = log.stat().st_size
            lost, reserved = engine.insert([NewJob("tests.task") for _ in range(3)]), engine.reserve(10)
            server.stop("immediate")
            os.truncate(log, length)
            server.start()

            again = engine.insert([NewJob("tests.task") for _ in range(20)])

        given = [*(job.id for job in lost), *reserved]
        assert not {*given, *(job.id for job in kept)} & {job.id for job in again}

    def test_two_restarts_that_are_both_forgotten_give_different_ids(self):
        """The second server begins with the same file as the first one: that any other was there is not in it."""
        with embedded.valkey() as server, closing(RedisEngine(server.url)) as engine:
            given = [job.id for job in engine.insert([NewJob("tests.task") for _ in range(3)])]
            log = next(server.data_directory.glob("appendonlydir/*.incr.aof"))
            length = log.stat().st_size
            for _ in range(3):
                server.stop("immediate")
                assert log.stat().st_size >= length
                os.truncate(log, length)
                server.start()
                given += [job.id for job in engine.insert([NewJob("tests.task") for _ in range(20)])]
                given += engine.reserve(1000)

        assert len(given) == len(set(given)) == 3 + 3 * 1020

    def test_one_restart_skips_few_enough_ids_for_a_hundred_thousand_restarts(self, engine, admin):
        engine.reserve(1)
        before = int(admin.get("{djqueue}:seq"))
        engine.close()
        admin.set("{djqueue}:server", "another one")

        [id] = engine.reserve(1)

        assert 2**20 < id - before <= 2**20 + 2**28
        assert 100_000 * (2**20 + 2**27) < 2**44  # half of the most, as it is on the average

    def test_one_that_was_not_restarted_skips_none(self, engine, server):
        [first] = engine.insert([NewJob("tests.task")])

        with closing(RedisEngine(server.url)) as other:
            [second] = other.insert([NewJob("tests.task")])

        assert second.id == first.id + 1

    def test_one_that_comes_back_with_its_memory_full_lets_workers_connect(self):
        with embedded.valkey() as server, closing(RedisEngine(server.url)) as engine:
            engine.insert([NewJob("tests.task")])
            server.settings["maxmemory"] = 1
            server.restart()

            assert len(engine.workers()) == 0

    def test_one_that_loads_its_data_is_unavailable_until_it_has(self, engine, admin):
        engine.insert_many(NewJob("t"), [("[]", "{}")] * 50)
        admin.config_set("key-load-delay", 5_000)  # microseconds for each key
        admin.config_set("loading-process-events-interval-bytes", 1024)
        loading = threading.Thread(target=lambda: redis.Redis.from_url(engine.url).execute_command("DEBUG", "RELOAD"))
        loading.start()
        unavailable = 0

        while loading.is_alive():
            try:
                engine.counts()
            except EngineUnavailable:
                unavailable += 1

        loading.join()
        admin.config_set("key-load-delay", 0)
        assert unavailable > 0
        assert engine.counts()[0].states == {"available": 50}

    def test_one_that_became_a_replica_is_unavailable_and_found_again_when_it_leads(self, engine, admin):
        engine.insert([NewJob("t")])
        admin.replicaof("127.0.0.1", 1)
        try:
            for verb in (lambda: engine.insert([NewJob("t")]), lambda: engine.reserve(1)):
                with pytest.raises(EngineUnavailable, match="READONLY"):
                    verb()
        finally:
            admin.replicaof("NO", "ONE")

        assert engine.insert([NewJob("t")])

    def test_one_that_is_busy_with_somebodys_script_is_unavailable(self, engine, admin, server):
        engine.insert([NewJob("t")])
        admin.config_set("busy-reply-threshold", 1)
        busy = redis.Redis.from_url(server.url)

        def spin() -> None:
            with pytest.raises(redis.ResponseError):
                busy.eval("while true do end", 0)
            busy.close()

        spinning = threading.Thread(target=spin)
        spinning.start()
        try:
            said = ""
            while not said:
                try:
                    engine.counts()
                except EngineUnavailable as error:
                    said = str(error)
            assert "BUSY" in said
        finally:
            admin.script_kill()
            spinning.join()
            admin.config_set("busy-reply-threshold", 5000)

        assert engine.counts()[0].states == {"available": 1}

    @pytest.mark.parametrize("ids", [None, [10, 11, 12]])
    def test_one_without_memory_stores_nothing_or_all_and_lets_workers_go_on(self, engine, admin, ids):
        engine.insert([NewJob("t") for _ in range(3)])
        engine.insert([NewJob("t", queue="later", delay=timedelta(seconds=9))])
        with a_worker(engine) as (worker, me):
            before = keys(admin)
            admin.config_set("maxmemory", 1)
            try:
                for new in (
                    NewJob("t"),
                    NewJob("t", delay=timedelta(seconds=9)),
                    NewJob("t", queue="new", unique_key="k"),
                ):
                    with pytest.raises(EngineUnavailable, match="is out of memory"):
                        engine.insert([new] * 3, ids=ids)
                with pytest.raises(EngineUnavailable, match="is out of memory"):
                    engine.insert_many(NewJob("t"), [("[]", "{}")] * 2500)
                assert keys(admin) == before

                jobs = worker.fetch("default", 5, me)
                outcomes = [
                    Ack(jobs[0].id, jobs[0].claim, JobState.COMPLETED, result='"kept"'),
                    Ack(jobs[1].id, jobs[1].claim, JobState.RETRYABLE, error="{}"),
                    Ack(jobs[2].id, jobs[2].claim, JobState.SCHEDULED, delay=60.0, is_spent=False),
                ]
                assert worker.ack(outcomes).accepted == {job.id for job in jobs}
                [again] = worker.fetch("default", 5, me)
                assert worker.rescue([me]).requeued == 1
            finally:
                admin.config_set("maxmemory", 0)

            states = [engine.get(job.id).state for job in jobs]
            assert states == [JobState.COMPLETED, JobState.AVAILABLE, JobState.SCHEDULED]
            assert again.attempt == 2

    def test_one_that_was_emptied_knows_no_worker_and_takes_no_outcome(self, engine, admin):
        engine.insert([NewJob("t")])
        with a_worker(engine) as (worker, me):
            [job] = worker.fetch("default", 1, me)
            admin.flushall()

            assert worker.beat([me]) == []  # which tells the worker that it is taken for dead
            assert worker.ack(completed(job)).accepted == set()
            engine.insert([NewJob("t")])
            assert worker.fetch("default", 1, me) == []

    def test_an_id_that_is_handed_out_twice_does_not_accept_the_first_ones_outcome(self, engine, admin):
        """As after a restart that lost the last second."""
        engine.insert([NewJob("first")])
        with a_worker(engine) as (worker, me):
            [stale] = worker.fetch("default", 1, me)
            saved = {key: admin.dump(key) for key in admin.scan_iter("*worker*")} | {
                key: admin.dump(key) for key in admin.scan_iter("*beats*")
            }
            admin.flushall()
            for key, value in saved.items():
                admin.restore(key, 0, value)
            engine.insert([NewJob("second")])
            [job] = worker.fetch("default", 1, me)
            assert (job.id, job.task) == (stale.id, "second")

            assert worker.ack(completed(stale, result='"first"')).accepted == set()
            assert worker.ack(completed(job, result='"second"')).accepted == {job.id}


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [
            "\0",
            "a\0b",
            "Ünal \U0001f680",
            "\u2028",
            "",
            [],
            {},
            [{}, []],
            2**63,
            -(2**80),
            1e300,
            0.1,
            -0.0,
            1e16,
            None,
            True,
        ],
        ids=repr,
    )
    def test_they_come_back_as_they_were(self, engine, value):
        text = json.dumps([value])
        named = json.dumps({"k": value})
        [inserted] = engine.insert([NewJob("t", args=text, kwargs=named, meta=named)])
        with a_worker(engine) as (worker, me):
            [job] = worker.fetch("default", 1, me)
            assert (job.args, job.kwargs, job.meta) == (text, named, named)
            worker.ack(completed(job, result=json.dumps(value)))

        stored = engine.get(inserted.id)
        assert (stored.args, stored.kwargs, stored.meta) == ([value], {"k": value}, {"k": value})
        assert repr(stored.result) == repr(value)

    def test_a_value_of_another_type_at_a_unique_key_is_named(self, engine, admin):
        admin.rpush("{djqueue}:unique:mine", 1)

        for jobs in ([NewJob("tests.task", unique_key="mine")], [NewJob("tests.task", unique_key="mine")] * 2):
            with pytest.raises(EngineRefused, match=r"\{djqueue\}:unique:mine does not hold a string"):
                engine.insert(jobs)

        assert engine.count(JobFilter()).count == 0

    def test_what_a_newer_version_adds_at_the_end_of_a_job_is_ignored(self, engine, admin):
        first = engine.insert_one(NewJob("tests.task", args='["a"]', unique_key="mine", queue="added"))
        key = f"{{djqueue}}:job:{first.id}"
        admin.set(key, msgpack.packb([*msgpack.unpackb(admin.get(key)), "new"]))

        again = engine.insert(
            [NewJob("tests.task", unique_key="mine", delay=timedelta(days=1))], rule=UniqueRule(reschedule=True)
        )
        assert (again[0].id, again[0].was_duplicate) == (first.id, True)
        assert engine.get(first.id).args == ["a"]
        engine.retry([first.id])
        with a_worker(engine) as (worker, me):
            [job] = worker.fetch("added", 9, me)
            admin.set(key, msgpack.packb([*msgpack.unpackb(admin.get(key)), "newer"]))
            assert engine.get(first.id).state == JobState.EXECUTING
            assert worker.ack([Ack(job.id, job.claim, JobState.RETRYABLE, error="{}")]).accepted == {job.id}
            run = f"{{djqueue}}:run:{first.id}"
            values = msgpack.unpackb(admin.get(run))
            admin.set(run, msgpack.packb([*values, *[False] * (codec._RUN_LENGTH - len(values)), "new"]))
            assert engine.get(first.id).attempt == 1
            [job] = worker.fetch("added", 9, me)
            assert (job.args, job.attempt) == ('["a"]', 2)

    def test_texts_that_are_none_are_refused_and_nothing_is_stored(self, engine, admin):
        before = keys(admin)

        for field in ("args", "queue", "task", "meta"):
            for count in (1, 2):
                with pytest.raises(EngineRefused):
                    engine.insert([NewJob("t")._replace(**{field: '["\ud800"]'})] * count)
        with pytest.raises(EngineRefused):
            engine.insert_many(NewJob("t"), [("[]", '{"\ud800": 1}')])

        assert keys(admin) == before

    def test_one_outcome_that_cannot_be_stored_keeps_its_batch_from_being_stored(self, engine):
        engine.insert([NewJob("t")] * 3)
        with a_worker(engine) as (worker, me):
            one, two, three = worker.fetch("default", 3, me)
            bad = Ack(two.id, two.claim, JobState.RETRYABLE, error='"\ud800"')

            with pytest.raises(EngineRefused):
                worker.ack([*completed(one), bad, *completed(three)])

            assert worker.ack(completed(one, three)).accepted == {one.id, three.id}

    def test_every_priority_has_its_place_and_keeps_its_order(self, engine):
        priorities = [-100, 100, 0, -1, 1, 99, -99]
        ids = {priority: [] for priority in priorities}
        for priority in priorities * 3:
            ids[priority].append(engine.insert([NewJob("t", priority=priority)])[0].id)

        with a_worker(engine) as (worker, me):
            found = [job.id for job in worker.fetch("default", 100, me)]

        assert found == [id for priority in sorted(priorities, reverse=True) for id in ids[priority]]

    @pytest.mark.parametrize("last", [2**31 - 2, 2**32 - 2, 2**43 - 2, 32767, 32768 * 5 - 3])
    def test_ids_may_be_large(self, engine, admin, last):
        engine.reserve(1)  # its connection takes the server for the one that gave the last ids
        admin.set("{djqueue}:seq", last)

        jobs = engine.insert([NewJob("t", priority=priority) for priority in (0, 0, -100, 100)])

        assert [job.id for job in jobs] == list(range(last + 1, last + 5))
        with a_worker(engine) as (worker, me):
            claimed = worker.fetch("default", 4, me)
            assert [job.id - last for job in claimed] == [4, 1, 2, 3]
            assert worker.ack(completed(*claimed)).accepted == {job.id for job in jobs}
        assert engine.get(last + 1).state == JobState.COMPLETED
        assert engine.count(JobFilter()).count == 4

    def test_a_hundred_thousand_go_in_at_once_and_come_out_in_order(self, engine):
        many = engine.insert_many(NewJob("t"), [(f"[{n}]", "{}") for n in range(100_000)])

        with a_worker(engine) as (worker, me):
            jobs = worker.fetch("default", 9000, me)
            assert [job.args for job in jobs] == [f"[{n}]" for n in range(9000)]
            assert len(worker.ack(completed(*jobs)).accepted) == 9000
        assert len(many.ids) == 100_000
        assert engine.counts()[0].states == {"available": 91_000}

    def test_jobs_of_any_kind_go_in_by_the_thousand(self, engine):
        jobs = engine.insert([NewJob(f"t{n % 7}", queue=f"q{n % 3}", priority=n % 5) for n in range(5000)])

        assert [job.id for job in jobs] == list(range(jobs[0].id, jobs[0].id + 5000))
        assert {row.queue: sum(row.states.values()) for row in engine.counts()} == {"q0": 1667, "q1": 1667, "q2": 1666}

    def test_large_arguments_come_in_parts_and_nothing_is_left_behind(self, engine):
        large = json.dumps(["x" * 100_000])
        jobs = engine.insert([NewJob("t", args=large, priority=n % 2) for n in range(400)])
        expected = [job.id for n, job in enumerate(jobs) if n % 2] + [job.id for n, job in enumerate(jobs) if not n % 2]
        found: list[int] = []
        with a_worker(engine) as (worker, me):
            while more := worker.fetch("default", 400, me):
                assert len(more) <= 85  # of 8 MB
                found += [job.id for job in more]

        assert found == expected

    def test_outcomes_of_many_megabytes_are_stored(self, engine):
        engine.insert([NewJob("t")] * 40)
        large = json.dumps("x" * 500_000)
        with a_worker(engine) as (worker, me):
            jobs = worker.fetch("default", 40, me)

            assert len(worker.ack(completed(*jobs, result=large)).accepted) == 40

        assert len(engine.get(jobs[-1].id).result) == 500_000


class TestListener:
    def test_one_message_wakes_all_and_nobody_sends_a_second(self, engine, admin):
        with engine.open_listener() as one, engine.open_listener() as two:
            one.mark(["default"])
            two.mark(["default"])

            for _ in range(10):
                engine.insert([NewJob("t")])

            assert [listener.wait(LONG) for listener in (one, two)] == [{"default"}] * 2
            assert admin.info("commandstats")["cmdstat_publish"]["calls"] == 1

    def test_who_is_not_asleep_on_a_queue_is_not_woken_for_it(self, engine):
        with engine.open_listener() as mine, engine.open_listener() as theirs:
            mine.mark(["mine"])
            theirs.mark(["theirs"])
            engine.insert([NewJob("t", queue="theirs")])
            engine.insert([NewJob("t", queue="mine")])

            assert mine.wait(LONG) == {"mine"}

    def test_a_message_that_came_behind_an_answer_is_heard(self, engine):
        """At 1,000 jobs a second they often arrive together, and the worker polled from then on."""
        with engine.open_listener() as listener:
            listener.mark(["default"])
            ears = listener._ears
            ears._send(client.packed(b"PING"), is_script=False)
            engine.insert([NewJob("t")])
            while b"default" not in ears.socket.recv(65536, socket.MSG_PEEK):
                pass

            assert ears._receive() == b"PONG"

            assert listener.wait(LONG) == {"default"}

    def test_a_message_that_was_left_unread_for_a_while_is_heard(self, engine):
        with engine.open_listener() as listener:
            listener.mark(["default"])
            engine.insert([NewJob("t")])
            listener._ears._used -= 60

            listener.mark(["default", "other"])

            assert listener.wait(LONG) == {"default"}

    def test_a_connection_that_a_mark_replaced_ends_the_sleep_for_what_was_marked_before(self, engine):
        with engine.open_listener() as listener:
            listener.mark(["default"])
            listener._ears.socket.shutdown(socket.SHUT_RDWR)

            listener.mark(["other"])

            assert listener.wait(LONG) == {"default"}

    def test_a_lost_connection_ends_the_sleep_and_the_next_mark_has_another(self, engine, admin):
        with engine.open_listener() as listener:
            listener.mark(["default"])
            admin.client_kill_filter(_type="pubsub")
            assert listener.wait(LONG) == {"default"}  # nobody knows what was called meanwhile

            listener.mark(["default"])
            engine.insert([NewJob("t")])

            assert listener.wait(LONG) == {"default"}

    def test_without_a_server_a_sleep_is_only_a_sleep(self):
        with RedisEngine("redis://127.0.0.1:1/0").open_listener() as listener:
            listener.mark(["default"])
            listener.unmark()

            assert listener.wait(0.01) == set()

    def test_a_long_sleep_renews_its_marks(self, engine, admin, monkeypatch):
        monkeypatch.setattr("djqueue.engines.redis.listener._RENEW_SECONDS", 0.05)
        with engine.open_listener() as listener:
            listener.mark(["default"])
            admin.delete("{djqueue}:asleep:default")
            waiting = threading.Thread(target=listener.wait, args=(LONG,))
            waiting.start()
            while not admin.exists("{djqueue}:asleep:default"):
                pass

            engine.insert([NewJob("t")])

            waiting.join(LONG)
            assert not waiting.is_alive()

    def test_a_mark_ends_by_itself(self, engine, admin):
        with engine.open_listener() as listener:
            listener.mark(["default"])

        assert 0 < admin.pttl("{djqueue}:asleep:default") <= 30_000


class TestDisconnect:
    def test_the_connections_of_dead_workers_are_ended_and_no_others(self, engine):
        with a_worker(engine) as (dead, its), a_worker(engine) as (living, mine), a_worker(engine) as (leader, _):
            for worker, id in ((dead, its), (living, mine)):
                worker.close()
                worker.fetch("default", 1, id)

            assert leader.disconnect([its]) == 1
            assert leader.disconnect([its]) == leader.disconnect([]) == 0
            assert living.fetch("default", 1, mine) == []


class TestTransactions:
    def test_nothing_here_can_commit_with_a_database(self, engine):
        assert not engine.is_transactional
        with pytest.raises(EngineRefused, match="PostgreSQL"):
            engine.transaction()
        with pytest.raises(EngineRefused, match="PostgreSQL"):
            engine.ack_here(Ack(1, 1, JobState.COMPLETED))


class TestPrefix:
    def test_two_of_them_on_one_server_know_nothing_of_each_other(self, server, engine):
        other = RedisEngine(server.url, "other")
        with engine.open_listener() as listener, a_worker(engine) as (worker, me):
            listener.mark(["default"])
            other.insert([NewJob("t")])

            assert worker.fetch("default", 1, me) == []
            assert listener.wait(0.05) == set()
            assert (len(engine.counts()), len(other.counts())) == (0, 1)
        other.close()

    def test_of_a_cluster_any_node_will_do(self):
        """Where the one that was named is gone, those are asked that it has told of."""
        url = stores.cluster()
        stores.empty(url)
        engine = RedisEngine(url)
        engine.insert([NewJob("t")])
        engine.nodes._first = ("127.0.0.1", 1)
        engine.nodes._home = ("127.0.0.1", 2)
        engine.close()

        assert engine.counts()[0].states == {"available": 1}
        engine.close()

    @pytest.mark.parametrize("prefix", ["a", "b", "c", "d", "e", "f"])
    def test_wherever_a_cluster_keeps_it_it_is_found(self, prefix):
        url = stores.cluster()
        stores.empty(url)
        engine = RedisEngine(url, prefix)
        with engine.open_listener() as listener, a_worker(engine) as (worker, me):
            listener.mark(["default"])
            engine.insert_many(NewJob("t"), [("[]", "{}")] * 2500)

            assert listener.wait(LONG) == {"default"}
            assert len(worker.ack(completed(*worker.fetch("default", 2500, me))).accepted) == 2500
        engine.close()
