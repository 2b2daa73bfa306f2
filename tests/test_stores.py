"""The store behind an entry of TASKS."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.local import Local
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured

from djqueue import InvalidOptions, compat, conf, stores
from djqueue.exceptions import ForeignBackend

POSTGRES = "djqueue.backends.PostgresBackend"
REDIS = "djqueue.backends.RedisBackend"
DUMMY = f"{compat.FRAMEWORK}.backends.dummy.DummyBackend"


@pytest.fixture
def parsed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the settings that are parsed, one by one."""
    settings.TASKS = {"default": {"BACKEND": POSTGRES}, "foreign": {"BACKEND": DUMMY}}
    parsed: list[str] = []
    parse = conf.parse

    def counting(options: object, kind: Any) -> Any:
        parsed.append(kind.__name__)
        return parse(options, kind)

    monkeypatch.setattr(conf, "parse", counting)
    return parsed


def test_threads_and_asyncio_tasks_share_one(parsed: list[str]) -> None:
    """The framework makes a backend for each of them."""
    found = []

    def look() -> None:
        store = stores.store()
        assert store.settings.max_attempts == 20
        found.append((compat.task_backends["default"], store, store.engine))

    async def ask() -> None:
        await asyncio.gather(*[asyncio.create_task(sync_to_async(look)()) for _ in range(3)])

    for thread in [threading.Thread(target=look) for _ in range(3)]:
        thread.start()
        thread.join()
    asyncio.run(ask())

    backends, found_stores, engines = zip(*found, strict=True)
    assert len({id(backend) for backend in backends}) > 1
    assert (len(set(found_stores)), len(set(engines)), parsed) == (1, 1, ["PostgresOptions"])


def test_other_settings_bring_another(parsed: list[str], settings: Any) -> None:
    before = stores.store()

    settings.TASKS = {"default": {"BACKEND": POSTGRES, "QUEUES": ["a"], "OPTIONS": {"max_attempts": 3}}}

    assert stores.store() is not before
    assert (stores.store().queues, stores.store().settings.max_attempts) == ({"a"}, 3)


def test_entries_that_are_changed_in_the_handler_bring_another(parsed: list[str], monkeypatch: Any) -> None:
    before = stores.store()
    entries = {"default": {"BACKEND": POSTGRES, "OPTIONS": {"max_attempts": 3}}}

    monkeypatch.setattr(compat.task_backends, "settings", entries)
    monkeypatch.setattr(compat.task_backends, "_connections", Local())

    assert stores.store() is not before
    assert stores.store().settings.max_attempts == 3


def test_wrong_options_are_an_error_of_the_first_use(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": POSTGRES, "OPTIONS": {"max_attempts": 0}}}

    store = stores.store()

    with pytest.raises(InvalidOptions, match="max_attempts"):
        store.settings  # noqa: B018
    assert list(stores.all()) == []


def test_a_backend_of_somebody_else_is_named(parsed: list[str]) -> None:
    assert stores.find("foreign") is None
    with pytest.raises(ForeignBackend, match=r"'foreign' in TASKS is DummyBackend.*PostgresBackend or RedisBackend"):
        stores.store("foreign")
    with pytest.raises(ImproperlyConfigured):
        stores.store("nowhere")


def test_all_are_those_that_can_be_used(settings: Any) -> None:
    settings.TASKS = {
        "a": {"BACKEND": POSTGRES},
        "b": {"BACKEND": REDIS, "OPTIONS": {"outbox": True}},
        "c": {"BACKEND": REDIS, "OPTIONS": {"outbox": True}},
        "d": {"BACKEND": REDIS, "OPTIONS": {"outbox": True, "prefix": "other"}},
        "foreign": {"BACKEND": DUMMY},
        "missing": {"BACKEND": "nowhere.Backend"},
        "wrong": {"BACKEND": POSTGRES, "OPTIONS": {"nonsense": 1}},
    }

    assert [store.alias for store in stores.all()] == ["a", "b", "c", "d"]
    assert [outbox.backend for outbox in stores.store("b").outboxes] == ["b", "c"]
    assert [stores.store(alias).database_of_tables for alias in "ab"] == ["default", "default"]
