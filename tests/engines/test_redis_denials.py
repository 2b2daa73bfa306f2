"""A server that answers but does not let us in is not away: what has to be corrected is told, and a worker does not wait for it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis
from django.core.management import call_command

from djqueue.contrib import embedded
from djqueue.engines.redis import RedisEngine
from djqueue.engines.redis.denials import needed
from djqueue.exceptions import EngineDenied, EngineUnavailable
from djqueue.jobs.records import NewJob, WorkerInfo
from tests import settings as test_settings
from tests import stores
from tests.processes import worker
from tests.roles import Roles

ALL = "~* &* +@all"


@pytest.fixture(scope="module", params=["valkey", "redis-server"])
def server(request: pytest.FixtureRequest) -> Iterator[embedded.ValkeyServer]:
    program = (
        None
        if request.param == "valkey"
        else shutil.which(request.param) or stores.missing("Redis 7 is not installed.")
    )
    with embedded.valkey(program=program) as running:
        yield running


@pytest.fixture
def admin(server: embedded.ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def url(server: embedded.ValkeyServer, login: str, database: int = 0) -> str:
    return f"redis://{login}127.0.0.1:{server.port}/{database}"


def password(server: embedded.ValkeyServer) -> str:
    return f":{urlsplit(server.url).password}@"


def limited(server: embedded.ValkeyServer, admin: redis.Redis, rules: str) -> str:
    """The url of a user who may do so much."""
    admin.flushall()
    admin.execute_command(f"ACL SETUSER limited reset on >secret {rules}")
    return url(server, "limited:secret@")


def said(url: str) -> str:
    def begin() -> None:
        with closing(RedisEngine(url)) as engine, Roles(engine) as worker:
            worker.inspect()
            worker.beat([])

    with pytest.raises(EngineDenied) as caught:
        begin()
    assert "cannot be reached" not in str(caught.value)
    return str(caught.value)


class TestLogin:
    def test_a_missing_password_belongs_into_the_url(self, server):
        assert "requires a password. Add it to the URL" in said(url(server, ""))

    def test_a_wrong_one_is_told(self, server):
        assert "rejected the user and password" in said(url(server, ":wrong@"))
        assert "rejected the user and password" in said(url(server, "nobody:wrong@"))

    def test_a_database_that_there_is_not_is_told(self, server):
        assert "has no database 99" in said(url(server, password(server), 99))

    def test_a_listener_says_the_same(self, server, caplog):
        with closing(RedisEngine(url(server, ""))) as engine, engine.open_listener() as listener:
            listener.mark(["default"])

        assert "Add it to the URL" in caplog.text


class TestPermissions:
    @pytest.mark.parametrize(
        "rules",
        ["~other:* &* +@all", "~* &* +@all -@scripting", "~* &* +@all -set", "~* &* +@read", "~* resetchannels +@all"],
    )
    def test_what_is_missing_is_told_with_the_rules_that_grant_it(self, server, admin, rules):
        text = said(limited(server, admin, rules))

        assert "the user 'limited'" in text
        assert f"ACL SETUSER limited {needed('{djqueue}:')}" in text

    def test_the_rules_suffice(self, server, admin, caplog):
        with (
            closing(RedisEngine(limited(server, admin, needed("{djqueue}:")))) as engine,
            Roles(engine) as worker,
        ):
            assert "djqueue.W003" not in [concern.id for concern in worker.inspect().concerns]
            me = uuid4()
            worker.register([WorkerInfo(id=me, name="w", hostname="h", pid=1, queues={}, concurrency=1)])
            assert worker.elect(uuid4(), 10.0).is_held
            with engine.open_listener() as listener:
                listener.mark(["default"])
                [job] = engine.insert([NewJob("t", unique_key="k")])
                assert listener.wait(10.0) == {"default"}
            with Roles(engine) as other:
                assert [claimed.id for claimed in other.fetch("default", 5, me)] == [job.id]
                assert worker.disconnect([me]) == 1
            engine.health()

        assert caplog.text == ""

    def test_readme_says_the_same(self):
        readme = (Path(__file__).parents[2] / "README.md").read_text()

        assert needed("{djqueue}:") in readme

    def test_an_outcome_that_may_not_be_stored_is_kept_for_later(self, server, admin):
        engine = RedisEngine(limited(server, admin, ALL))
        with closing(engine):
            engine.insert([NewJob("t")])
            admin.execute_command("ACL SETUSER limited -evalsha")
            with pytest.raises(EngineUnavailable):
                engine.insert([NewJob("t")])


@pytest.mark.django_db(transaction=True)
class TestWorker:
    def test_it_leaves_at_once_because_it_may_not_run_scripts(self, server, admin, monkeypatch):
        monkeypatch.setenv("REDIS_URL", limited(server, admin, "~* &* +@all -@scripting"))

        with worker(env={"DJQUEUE_STORE": "redis"}) as running:
            assert running.wait(20) == 1, running.log

        assert "ACL SETUSER limited" in running.log

    @pytest.mark.parametrize("processes", [1, 3])
    def test_it_leaves_at_once_because_the_settings_are_wrong(self, server, monkeypatch, processes):
        monkeypatch.setenv("REDIS_URL", url(server, ":wrong@"))

        with worker("--processes", str(processes), env={"DJQUEUE_STORE": "redis"}) as running:
            assert running.wait(20) == 1, running.log

        assert running.log.count("CRITICAL store.concern") == 1
        assert "rejected the user and password" in running.log
        assert "Traceback" not in running.log


def test_queuehealth_says_what_to_correct(server: embedded.ValkeyServer, settings: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("REDIS_URL", url(server, ""))
    settings.TASKS = test_settings.tasks("redis")
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("queuehealth", stdout=out)

    assert re.match(r"BAD   server: The server at .* requires a password", out.getvalue())
    assert "Is it up" not in out.getvalue()
