"""The Redis backend on an emptied server, beside the test's PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from djqueue import stores as entries
from djqueue import telemetry
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Job
from djqueue.stores import RedisStore
from tests import settings as test_settings
from tests import stores
from tests.proxy import Proxy, proxy

Events = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def use_redis(settings: Any) -> Iterator[Callable[..., RedisStore]]:
    """Put the default backend on an emptied Valkey, with these options; return it."""

    def use_redis(**options: Any) -> RedisStore:
        stores.empty(stores.valkey())
        tasks: Any = test_settings.tasks("redis")
        tasks["default"]["OPTIONS"].update(options)
        settings.TASKS = tasks
        backend = entries.store("default")
        assert isinstance(backend, RedisStore)
        return backend

    yield use_redis
    # The connections of this test's servers are nobody's any more.
    entries._redis_engine.cache_clear()
    entries._id_pool.cache_clear()


@pytest.fixture
def backend(use_redis: Callable[..., RedisStore]) -> RedisStore:
    return use_redis()


@pytest.fixture
def events() -> Iterator[Events]:
    """The events that happen, by name."""
    seen: Events = []
    detach = telemetry.attach(lambda event, fields: seen.append((event, dict(fields))))
    yield seen
    detach()


@pytest.fixture
def away(use_redis: Callable[..., RedisStore]) -> Iterator[Proxy]:
    """A proxy between the default backend and its server, that can be cut."""
    parts = urlsplit(stores.valkey())
    with proxy(str(parts.hostname), int(parts.port or 0)) as between:
        yield between


def through(between: Proxy) -> str:
    """The url of the server behind a proxy."""
    parts = urlsplit(stores.valkey())
    secret = f":{parts.password}@" if parts.password else ""
    return f"redis://{secret}127.0.0.1:{between.port}{parts.path}"


def jobs_of(backend: RedisStore) -> list[Job]:
    """All jobs in the store, in the order of their ids."""
    ids = backend.engine.find(JobFilter(), last=2**53, limit=100_000)
    return [job for id in ids if (job := backend.engine.get(id)) is not None]


def names(events: Events) -> list[str]:
    return [name for name, _ in events]
