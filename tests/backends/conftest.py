"""The Redis backend on an emptied server, beside the test's PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from djqueue import compat, telemetry
from djqueue.backends import RedisBackend
from djqueue.backends import redis as redis_backend
from djqueue.jobs.records import Job, JobFilter
from tests import settings as test_settings
from tests import stores
from tests.proxy import Proxy, proxy

Events = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def use_redis(settings: Any) -> Iterator[Callable[..., RedisBackend]]:
    """Put the default backend on an emptied Valkey, with these options; return it."""

    def use_redis(**options: Any) -> RedisBackend:
        stores.empty(stores.valkey())
        tasks: Any = test_settings.tasks("redis")
        tasks["default"]["OPTIONS"].update(options)
        settings.TASKS = tasks
        backend = compat.task_backends["default"]
        assert isinstance(backend, RedisBackend)
        return backend

    yield use_redis
    # The connections of this test's servers are nobody's any more.
    redis_backend._engine.cache_clear()
    redis_backend._stock.cache_clear()


@pytest.fixture
def backend(use_redis: Callable[..., RedisBackend]) -> RedisBackend:
    return use_redis()


@pytest.fixture
def events() -> Iterator[Events]:
    """The events that happen, by name."""
    seen: Events = []
    detach = telemetry.attach(lambda event, fields: seen.append((event, dict(fields))))
    yield seen
    detach()


@pytest.fixture
def away(use_redis: Callable[..., RedisBackend]) -> Iterator[Proxy]:
    """A proxy between the default backend and its server, that can be cut."""
    parts = urlsplit(stores.valkey())
    with proxy(str(parts.hostname), int(parts.port or 0)) as between:
        yield between


def through(between: Proxy) -> str:
    """The url of the server behind a proxy."""
    parts = urlsplit(stores.valkey())
    secret = f":{parts.password}@" if parts.password else ""
    return f"redis://{secret}127.0.0.1:{between.port}{parts.path}"


def jobs_of(backend: RedisBackend) -> list[Job]:
    """All jobs in the store, in the order of their ids."""
    ids = backend.engine.find(JobFilter(), last=2**53, limit=100_000)
    return [job for id in ids if (job := backend.engine.get(id)) is not None]


def names(events: Events) -> list[str]:
    return [name for name, _ in events]
