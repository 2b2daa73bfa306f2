"""Who wants to see the statements of a connection sees the insert too, although it goes past Django's cursors otherwise."""

from __future__ import annotations

from typing import Any
from unittest import mock

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, connections
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from djqueue.models import Job
from tests.engines.sessions import NEW, executions

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


def test_the_query_log_shows_the_insert(warm):
    with CaptureQueriesContext(connection) as queries:
        warm.insert([NEW])

    [query] = queries.captured_queries
    assert query["sql"].startswith("INSERT INTO djqueue_job")
    assert "'tests.task'" in query["sql"]


def test_it_counts_for_assert_num_queries(warm, django_assert_num_queries):
    with django_assert_num_queries(1):
        warm.insert([NEW])


@override_settings(DEBUG=True)
def test_in_debug_it_is_logged(warm):
    before = len(connection.queries_log)

    warm.insert([NEW])

    assert len(connection.queries_log) == before + 1


def test_execute_wrappers_are_called(warm):
    seen = []

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        warm.insert([NEW])

    [statement] = seen
    assert statement.startswith("INSERT INTO djqueue_job")


def test_a_wrapper_that_forbids_queries_forbids_this_one(warm):
    def forbid(*args: Any) -> Any:
        raise AssertionError("no queries here")

    with pytest.raises(AssertionError, match="no queries"), connection.execute_wrapper(forbid):
        warm.insert([NEW])

    assert not Job.objects.exists()


def test_a_cursor_method_put_on_the_connection_is_used(warm):
    # As django-debug-toolbar, ddtrace and tests without databases do.
    wrapper = connections["default"]

    with mock.patch.object(wrapper, "cursor", wraps=wrapper.cursor) as cursor:
        warm.insert([NEW])

    assert cursor.call_count == 1


def test_the_genuine_one_put_back_is_not_in_the_way(warm, monkeypatch):
    # Django's own tests without databases leave it on the connection.
    wrapper = connections["default"]
    monkeypatch.setitem(vars(wrapper), "cursor", wrapper.cursor)
    before = executions()

    warm.insert([NEW])

    assert executions() == before + 1


def test_a_database_backend_with_cursors_of_its_own_is_used(postgres, monkeypatch):
    # As django-prometheus does.
    seen = []
    genuine = DatabaseWrapper.create_cursor

    def create_cursor(self: Any, name: Any = None) -> Any:
        seen.append(1)
        return genuine(self, name)

    monkeypatch.setattr(type(connections["default"]), "create_cursor", create_cursor)
    connection.close()

    for _ in range(3):
        postgres.insert([NEW])

    assert len(seen) >= 3
    connection.close()


@pytest.mark.parametrize("kind", ["function", "callable"])
def test_an_execute_put_on_djangos_cursors_is_used(warm, monkeypatch, kind):
    # As sentry does.
    seen = []
    genuine = CursorWrapper.execute

    def execute(self: Any, *args: Any) -> Any:
        seen.append(1)
        return genuine(self, *args)

    class Proxy:
        __code__ = genuine.__code__

        def __get__(self, instance: Any, owner: Any) -> Any:
            return self if instance is None else lambda *args: execute(instance, *args)

    monkeypatch.setattr(CursorWrapper, "execute", execute if kind == "function" else Proxy())

    warm.insert([NEW])

    assert seen == [1]


def test_a_cursor_class_of_the_project_is_used(postgres, monkeypatch):
    # As OpenTelemetry does.
    seen = []

    class Cursor(psycopg.ClientCursor):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(str(query))
            return super().execute(query, *args, **kwargs)

    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "cursor_factory", Cursor)
    connection.close()

    for _ in range(3):
        postgres.insert([NEW])

    connection.close()
    assert sum("INSERT INTO djqueue_job" in statement for statement in seen) == 3


def test_on_an_event_loop_it_is_refused(warm):
    async def enqueue() -> None:
        warm.insert([NEW])

    with pytest.raises(SynchronousOnlyOperation):
        async_to_sync(enqueue)()
