"""What a Redis server says about itself, and what becomes of a worker that meets an unfit one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from django.core.management import CommandError, call_command

from djqueue.contrib import embedded
from djqueue.engines.redis import RedisEngine
from djqueue.jobs.health import Inspection
from djqueue.maintenance.health import judge
from tests import settings as test_settings
from tests import stores
from tests.processes import eventually, worker
from tests.roles import Roles

Start = Callable[..., str]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Valkey with these settings; return its url."""
    with ExitStack() as servers:
        yield (
            lambda **settings: (
                servers.enter_context(
                    embedded.valkey(settings={name.replace("_", "-"): value for name, value in settings.items()})
                ).url
            )
        )


def inspect(url: str) -> Inspection:
    with Roles(RedisEngine(url)) as engine:
        return engine.inspect()


def ids(url: str) -> list[str]:
    return [concern.id for concern in inspect(url).concerns]


class TestInspect:
    @pytest.mark.parametrize("kind", stores.REDIS)
    def test_a_server_tells_what_it_is(self, kind: str) -> None:
        seen = inspect(getattr(stores, kind)())

        assert seen.server.startswith("Redis 7." if kind == "redis7" else "Valkey ")
        assert (seen.about["eviction"], seen.about["role"]) == ("noeviction", "primary")
        assert seen.about["cluster"] == ("yes" if kind == "cluster" else "no")

    def test_an_append_only_file_is_no_concern(self, start: Start) -> None:
        seen = inspect(start(appendonly=True, appendfsync="everysec"))

        assert seen.concerns == []
        assert seen.about["persistence"] == "append-only file, fsync everysec"
        assert seen.about["memory"].endswith(("M, no limit", "K, no limit"))

    @pytest.mark.parametrize(
        ("settings", "persistence", "word"),
        [
            ({"appendonly": True, "appendfsync": "no"}, "append-only file, fsync no", "30 seconds"),
            ({"appendonly": False, "save": "3600 1"}, "snapshots only", "since the last one"),
            ({"appendonly": False, "save": ""}, "none", "a restart loses all jobs"),
        ],
    )
    def test_what_a_crash_loses_is_told(
        self, start: Start, settings: dict[str, Any], persistence: str, word: str
    ) -> None:
        seen = inspect(start(**settings))

        assert seen.about["persistence"] == persistence
        [concern] = seen.concerns
        assert (concern.id, concern.is_fatal) == ("djqueue.W005", False)
        assert word in concern.text

    def test_a_server_that_evicts_keys_is_unfit(self, start: Start) -> None:
        seen = inspect(start(appendonly=True, maxmemory="100mb", maxmemory_policy="allkeys-lru"))
        assert re.fullmatch(r"[\d.]+[KMG] of 100.00M", seen.about["memory"])

        [concern] = seen.concerns
        assert (concern.id, concern.is_fatal) == ("djqueue.W004", True)
        assert "allkeys-lru" in concern.text

    def test_a_replica_is_told(self, start: Start) -> None:
        primary = urlsplit(start(appendonly=True))
        replica = start(appendonly=True, replicaof=f"127.0.0.1 {primary.port}", primaryauth=str(primary.password or ""))

        assert "djqueue.W006" in ids(replica)
        assert inspect(replica).about["role"] == "replica"

    def test_whoever_asks_a_replica_is_pointed_at_the_primary(
        self, start: Start, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        primary = urlsplit(start())
        replica = start(replicaof=f"127.0.0.1 {primary.port}", primaryauth=str(primary.password or ""))
        monkeypatch.setenv("REDIS_URL", replica)
        settings.TASKS = test_settings.tasks("redis")
        out = StringIO()

        with pytest.raises(SystemExit):
            call_command("queuehealth", stdout=out)
        with pytest.raises(CommandError, match=r"is a read-only replica.* Point the URL at the primary"):
            call_command("queuestats")

        assert re.match(r"BAD   server: .* is a read-only replica.* Point the URL at the primary", out.getvalue())

    def test_a_server_that_is_almost_full_is_told(self, start: Start) -> None:
        url = start(appendonly=True)
        with redis.Redis.from_url(url) as client:
            client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.05))

        assert ids(url) == ["djqueue.W008"]

    def test_a_server_that_is_full_is_told_before_all_else(self, start: Start) -> None:
        url = start(appendonly=True)
        with redis.Redis.from_url(url) as client, closing(RedisEngine(url)) as engine:
            client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 0.95))

            [concern] = inspect(url).concerns
            first = judge(engine.health())[0]

        assert (concern.id, concern.is_fatal, concern.keeps_jobs_out) == ("djqueue.W008", False, True)
        assert (first.name, first.level) == ("server", "bad")
        assert "out of memory" in first.text
        assert "prunejobs" in first.advice

    @pytest.mark.parametrize(
        ("key", "is_refusing"), [("aof_last_write_status", True), ("rdb_last_bgsave_status", False)]
    )
    def test_a_server_whose_disk_is_full_is_told_with_what_follows(self, key: str, is_refusing: bool) -> None:
        from djqueue.engines.redis.server import _warnings

        [concern] = _warnings({key: "err"})

        assert (concern.id, concern.keeps_jobs_out) == ("djqueue.W007", is_refusing)
        assert ("it refuses all writes" in concern.text) == is_refusing

    def test_who_may_not_ask_is_told_that_nobody_can_tell(self, start: Start) -> None:
        url = start(appendonly=True)
        with redis.Redis.from_url(url) as client:
            client.execute_command("ACL SETUSER worker on >secret ~* &* +@all -info")
        parts = urlsplit(url)

        assert ids(f"redis://worker:secret@127.0.0.1:{parts.port}/0") == ["djqueue.W003"]

    def test_without_config_only_the_snapshots_are_unknown(self, start: Start) -> None:
        url = start(appendonly=False)
        with redis.Redis.from_url(url) as client:
            client.execute_command("ACL SETUSER worker on >secret ~* &* +@all -config")
        parts = urlsplit(url)

        seen = inspect(f"redis://worker:secret@127.0.0.1:{parts.port}/0")

        assert seen.about["persistence"] == "no append-only file"

    @pytest.mark.parametrize(
        ("info", "is_old"),
        [
            ({"redis_version": "6.0.20"}, True),
            ({"redis_version": "6.2.0"}, False),
            ({"redis_version": "8.2.1"}, False),
            ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, False),
            ({"redis_version": "255.255.255", "valkey_version": "9.1.2"}, False),
            ({"redis_version": "7.2.4", "valkey_version": "7.1.9"}, True),
        ],
    )
    def test_an_old_server_is_unfit(self, info: dict[str, str], is_old: bool) -> None:
        from djqueue.engines.redis.server import _refusals, _version

        assert [concern.id for concern in _refusals(*_version(info), info)] == (["djqueue.E007"] if is_old else [])


@pytest.mark.django_db(transaction=True)
class TestWorker:
    def test_it_says_what_it_found(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("REDIS_URL", start(appendonly=True))

        with worker("--drain", env={"DJQUEUE_STORE": "redis"}) as running:
            assert running.wait() == 0, running.log

        assert "store.seen" in running.log
        assert "append-only file, fsync everysec" in running.log

    def test_it_refuses_a_server_that_would_lose_jobs(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("REDIS_URL", start(maxmemory="100mb", maxmemory_policy="volatile-lru"))

        with worker(env={"DJQUEUE_STORE": "redis"}) as running:
            assert running.wait() == 1, running.log

        assert "CRITICAL store.concern" in running.log
        assert "volatile-lru" in running.log

    def test_it_waits_for_a_server_that_is_not_there_yet(self, monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
        parts = urlsplit(stores.valkey())
        from tests.proxy import proxy

        with proxy("127.0.0.1", int(parts.port or 0)) as between:
            between.refuse()
            secret = f":{parts.password}@" if parts.password else ""
            monkeypatch.setenv("REDIS_URL", f"redis://{secret}127.0.0.1:{between.port}/0")
            with worker("--drain", env={"DJQUEUE_STORE": "redis"}) as running:
                running.wait_for_log("supervisor.waiting")
                between.accept()
                assert running.wait() == 0, running.log

        assert "store.seen" in running.log

    def test_it_gives_up_after_a_while_and_does_not_say_each_second_that_it_waits(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")

        with worker(env={"DJQUEUE_STORE": "redis", "DJQUEUE_GIVE_UP_AFTER": "6"}) as running:
            eventually(lambda: running.process.poll() is not None, 30, lambda: running.log)
            assert running.wait() == 2, running.log

        # At first, and after two and four seconds more.
        assert 1 <= running.log.count("supervisor.waiting") <= 3, running.log
        assert 1 <= running.log.count("service.failure service=heartbeat") <= 3, running.log
