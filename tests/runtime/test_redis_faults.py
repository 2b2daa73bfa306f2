"""Faults of a Redis server and of the connections to it, on real workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from djqueue.contrib import embedded
from djqueue.exceptions import EngineUnavailable
from tests import settings as test_settings
from tests import stores
from tests.backlog import ended, engine, jobs, live, states, stored
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import drain, eventually, worker
from tests.proxy import Proxy, proxy

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def default_backend_at(url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the default backend there, here and in the workers that the test starts."""
    monkeypatch.setenv("DJQUEUE_STORE", "redis")
    monkeypatch.setenv("REDIS_URL", url)
    settings.TASKS = test_settings.tasks("redis")
    yield
    engine().close()  # type: ignore[attr-defined]  # it keeps a connection for each thread


@pytest.fixture
def server(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[embedded.ValkeyServer]:
    """A server of the test's own, which writes its log as one in production does."""
    with embedded.valkey() as running, default_backend_at(running.url, settings, monkeypatch):
        yield running


@pytest.fixture
def admin(server: embedded.ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.mark.parametrize("place", ["redis7", "cluster"])
def test_a_thousand_jobs_run_exactly_once_on_another_server(
    place: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = getattr(stores, place)()
    stores.empty(url)
    with default_backend_at(url, settings, monkeypatch):
        tasks.count.enqueue_many(((number,), {}) for number in range(1000))
        slept = tasks.arecord.enqueue("async")

        drain("--processes", "2", "-v", "0")

        assert states() == {"completed": 1001}
        assert sorted(job.result for job in jobs() if job.id != int(slept.id)) == list(range(1000))
        assert {job.attempt for job in jobs()} == {1}


class TestServer:
    def test_a_restart_under_running_workers_loses_nothing_and_doubles_nothing(
        self, server: embedded.ValkeyServer
    ) -> None:
        through = tasks.nap.enqueue("through", 6)
        with worker("--processes", "2", "--concurrency", "4") as running:
            eventually(lambda: Entry.objects.filter(label="through").exists(), explain=lambda: running.log)
            tasks.record.enqueue_many(((str(number),), {}) for number in range(2000))
            eventually(lambda: live() < 1800, explain=lambda: running.log)

            server.restart()

            eventually(lambda: states() == {"completed": 2001}, 60, lambda: (states(), running.log))
            running.stop()
            assert running.wait() == 0, running.log

        assert Entry.objects.count() == 2001
        assert {job.attempt for job in jobs()} == {1}
        assert stored(through).result == "through"

    def test_a_server_away_for_ten_seconds_costs_no_job_its_attempt_or_outcome(
        self, server: embedded.ValkeyServer
    ) -> None:
        tasks.nap.enqueue("ends meanwhile", 4)
        tasks.anap.enqueue("ends afterwards", 14)
        with worker("--processes", "2") as running, worker() as other:
            eventually(lambda: Entry.objects.count() == 2, explain=lambda: running.log)
            server.stop()
            time.sleep(10)  # the fault lasts that long
            server.start()
            after = tasks.record.enqueue("after")
            eventually(lambda: states() == {"completed": 3}, 40, lambda: running.log + other.log)

            assert "silent" not in running.log + other.log
            assert "Traceback" not in running.log + other.log
        assert Entry.objects.count() == 3
        assert stored(after).attempt == 1

    def test_a_crash_that_forgets_the_last_second_loses_no_job_from_before(self, server: embedded.ValkeyServer) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(500))
        with worker("--concurrency", "2") as running:
            eventually(lambda: ended() > 50, explain=lambda: running.log)
            time.sleep(1.1)  # what was enqueued has reached the disk by then
            server.restart("immediate")
            eventually(lambda: states() == {"completed": 500}, 60, lambda: (states(), running.log))

        assert set(Entry.objects.values_list("label", flat=True)) == {str(number) for number in range(500)}

    def test_a_server_that_was_emptied_costs_its_jobs_and_no_worker(
        self, server: embedded.ValkeyServer, admin: redis.Redis
    ) -> None:
        with worker() as running:
            tasks.record.enqueue("before")
            eventually(ended, explain=lambda: running.log)

            admin.flushall()

            # Its worker is unknown there now, and so dead; a successor takes its place.
            running.wait_for_log("worker.start", count=2)
            assert "worker.declared_dead" in running.log
            assert "The store has no row for it" in running.log
            result = tasks.record.enqueue("after")
            eventually(lambda: stored(result).state == "completed", explain=lambda: running.log)
            running.stop()
            assert running.wait() == 0, running.log

        assert states() == {"completed": 1}

    def test_a_full_server_takes_no_jobs_until_the_leader_has_made_room(
        self, server: embedded.ValkeyServer, admin: redis.Redis
    ) -> None:
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 4_000_000)
        count = 0

        def fill() -> None:
            nonlocal count
            while count < 10_000:
                tasks.describe.enqueue("x" * 20_000)
                count += 1

        with pytest.raises(EngineUnavailable, match="is out of memory"):
            fill()
        drain("-v", "1")

        assert states() == {"completed": count}
        with pytest.raises(EngineUnavailable, match="is out of memory"):
            fill()
        with worker("-v", "1", env={"DJQUEUE_GIVE_UP_AFTER": "3", "DJQUEUE_KEEP": "0.001"}) as running:
            eventually(lambda: states() == {}, 30, lambda: (states(), running.log))
            tasks.record.enqueue("after")
            eventually(lambda: Entry.objects.filter(label="after").exists(), explain=lambda: running.log)
            running.stop()
            assert running.wait() == 0, running.log

        assert count > 10
        assert "service.failure" not in running.log
        assert "wake-ups" not in running.log

    def test_a_worker_gives_up_after_a_configured_time_without_a_server(self, server: embedded.ValkeyServer) -> None:
        server.stop()

        with worker("-v", "1", env={"DJQUEUE_GIVE_UP_AFTER": "2"}) as running:
            code = running.wait(60)

        server.start()
        assert code == 2, running.log
        assert "supervisor.gave_up" in running.log


class TestUnderLoad:
    def test_scripts_that_are_forgotten_all_the_time_only_cost_time(self, admin: redis.Redis) -> None:
        tasks.count.enqueue_many(((number,), {}) for number in range(5000))

        with worker("--processes", "2", "--drain", "-v", "0") as running:
            while running.process.poll() is None:
                admin.script_flush()
                time.sleep(0.01)  # every few batches
            assert running.wait() == 0, running.log

        assert states() == {"completed": 5000}
        assert {job.attempt for job in jobs()} == {1}

    def test_connections_that_are_killed_all_the_time_lose_nothing(self, admin: redis.Redis) -> None:
        tasks.record.enqueue_many(((str(number),), {}) for number in range(2000))

        with worker("--processes", "2", "--concurrency", "4") as running:
            eventually(lambda: live() < 1900, explain=lambda: running.log)
            pids = running.child_pids()
            for _ in range(5):
                for kind in ("normal", "pubsub"):
                    admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
                time.sleep(0.5)  # the workers come back, and are in the middle of something
            eventually(lambda: states() == {"completed": 2000}, 60, lambda: (states(), running.log))

            assert running.child_pids() == pids, running.log
            assert "Traceback" not in running.log

        assert set(Entry.objects.values_list("label", flat=True)) == {str(number) for number in range(2000)}


class TestNetwork:
    @pytest.fixture
    def wire(self, server: embedded.ValkeyServer) -> Iterator[Proxy]:
        """A proxy before the server; workers get to it with ``at(wire)``."""
        assert server.port is not None
        with proxy("127.0.0.1", server.port) as running:
            yield running

    @staticmethod
    def at(wire: Proxy, server: embedded.ValkeyServer) -> dict[str, str]:
        return {"REDIS_URL": server.url.replace(f":{server.port}/", f":{wire.port}/")}

    def test_refused_connections_are_waited_out(self, server: embedded.ValkeyServer, wire: Proxy) -> None:
        with worker(env=self.at(wire, server)) as running:
            running.wait_for_log("worker.start")
            pids = running.child_pids()
            wire.refuse()
            time.sleep(20)  # the fault lasts that long
            wire.accept()
            result = tasks.record.enqueue("after")
            eventually(lambda: stored(result).state == "completed", 15, lambda: running.log)

            assert running.child_pids() == pids, running.log
            # Once per step of the backoff, for each of the services.
            assert running.log.count("service=producer failures=") < 15, running.log
            assert "Traceback" not in running.log
            running.stop()
            assert running.wait() == 0, running.log

    def test_a_slow_network_only_slows(self, server: embedded.ValkeyServer, wire: Proxy) -> None:
        wire.latency_seconds = 0.2
        tasks.record.enqueue_many(((str(number),), {}) for number in range(30))

        with worker("--drain", env=self.at(wire, server)) as running:
            assert running.wait() == 0, running.log

        assert states() == {"completed": 30}
        assert {job.attempt for job in jobs()} == {1}

    def test_a_worker_that_stops_while_the_server_is_away_ends(
        self, server: embedded.ValkeyServer, wire: Proxy
    ) -> None:
        """It has an outcome that it cannot store, and its supervisor a dead worker that it cannot report."""
        result = tasks.nap.enqueue("lost", 1)
        with worker(env={**self.at(wire, server), "DJQUEUE_SHUTDOWN_TIMEOUT": "2"}) as running:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: running.log)
            wire.refuse()
            running.stop()

            assert running.wait(30) == 0, running.log

        assert states() == {"executing": 1}
        with worker() as other:  # finds the silent one
            eventually(lambda: stored(result).state == "completed", 40, lambda: other.log)
