from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created

from djqueue.runtime import django_connections
from tests.ledger.sessions import CHANGES, look

pytestmark = pytest.mark.django_db(transaction=True)


def in_thread(work: Callable[[], Any]) -> Any:
    """Run something as a job's thread does, with connections of its own."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(work())
        finally:
            django_connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


def execute(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone() if cursor.description else None


def pid() -> int:
    return int(execute("SELECT pg_backend_pid()")[0])


def pids(count: int = 3, between: Callable[[], Any] = lambda: None, *, is_clean: bool = True) -> list[int]:
    """Return which sessions serve so many jobs of a thread; ``between``: what each does besides."""

    def work() -> list[int]:
        seen = []
        for _ in range(count):
            seen.append(pid())
            between()
            django_connections.give_back(is_clean=is_clean)
        return seen

    return list(in_thread(work))


def test_t02_a_busy_thread_resets_its_session_instead_of_connecting() -> None:
    first, *others = pids(4)

    # How the first was opened is not known.
    assert first not in others
    assert len(set(others)) == 1


@pytest.mark.parametrize("change", CHANGES)
def test_t02_a_reset_session_is_like_a_new_one(change: str) -> None:
    def work() -> tuple[Any, Any]:
        pid()
        django_connections.give_back(is_clean=True)
        new = look()
        execute(change)
        session = connection.connection.info.backend_pid
        django_connections.give_back(is_clean=True)
        reset = look()
        assert connection.connection.info.backend_pid == session
        return new, reset

    new, reset = in_thread(work)

    assert new == reset


def test_t02_what_a_project_does_to_a_new_connection_is_done_to_a_reset_one() -> None:
    seen: list[str] = []

    def prepare(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '500ms'")

    def note() -> None:
        seen.append(execute("SHOW statement_timeout")[0])

    connection_created.connect(prepare)
    try:
        pids(3, note)
    finally:
        connection_created.disconnect(prepare)

    assert seen == ["500ms"] * 3


def _turn_read_only() -> None:
    connection.connection.read_only = False


def _listen_in_python() -> None:
    connection.connection.add_notify_handler(lambda notify: None)


def _move() -> None:
    # As projects with a database per customer do.
    connection.settings_dict["OPTIONS"]["application_name"] = f"moved {pid()}"


@pytest.mark.parametrize("change", [_turn_read_only, _listen_in_python, _move])
def test_t02_what_a_reset_does_not_undo_costs_a_new_connection(change: Callable[[], None]) -> None:
    with mock.patch.dict(connection.settings_dict, OPTIONS={**connection.settings_dict["OPTIONS"]}):
        assert len(set(pids(3, change))) == 3


def test_t02_a_failed_job_costs_its_connection() -> None:
    assert len(set(pids(3, is_clean=False))) == 3


def test_t02_a_connection_that_the_project_opens_itself_is_closed() -> None:
    def get_new_connection(self: Any, params: dict[str, Any]) -> Any:
        return psycopg.connect(**params)

    with mock.patch.object(type(connections["default"]), "get_new_connection", get_new_connection):
        assert len(set(pids(3))) == 3


def test_t02_an_idle_thread_holds_no_session_that_django_would_have_closed() -> None:
    def work() -> int:
        for _ in range(3):
            session = pid()
            django_connections.give_back(is_clean=True)
        django_connections.close_unkeepable()
        return session

    session = in_thread(work)

    with connection.cursor() as cursor:
        # The server notices a moment later: waiting for it, by its end or by its lock, needs the session's own statement.
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active'", [session])
        assert cursor.fetchone() == (0,)


def test_t02_a_session_that_has_ended_is_not_handed_out() -> None:
    def work() -> tuple[int, int]:
        pid()
        django_connections.give_back(is_clean=True)
        session = pid()
        django_connections.give_back(is_clean=True)
        with _other() as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [session])
        return session, pid()

    ended, after = in_thread(work)

    assert ended != after


class Pool:
    """As much of psycopg_pool's as Django uses."""

    def __init__(self, kwargs: dict[str, Any], configure: Callable[[Any], Any], **options: Any) -> None:
        self.kwargs, self.configure = kwargs, configure
        self.given_back: list[psycopg.Connection] = []

    def open(self) -> None:
        pass

    def getconn(self) -> psycopg.Connection:
        raw = psycopg.connect(**self.kwargs)
        raw._pool = self  # type: ignore[attr-defined]
        self.configure(raw)
        return raw

    def putconn(self, raw: psycopg.Connection) -> None:
        self.given_back.append(raw)

    def close(self) -> None:
        for raw in self.given_back:
            raw.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_t02_djangos_pool_gets_its_connection_back_between_two_jobs(
    is_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg_pool", mock.Mock(ConnectionPool=Pool))
    with mock.patch.dict(
        connection.settings_dict, OPTIONS={**connection.settings_dict["OPTIONS"], "pool": {"min_size": 1}}
    ):

        def work() -> list[psycopg.Connection]:
            for _ in range(2):
                pid()
                django_connections.give_back(is_clean=is_clean)
            return list(connection.pool.given_back)

        given_back = in_thread(work)
        connections["default"].close_pool()

    assert len(given_back) == 2
    # What a failed job left is not for others: the pool replaces what is closed.
    assert all(raw.closed for raw in given_back) or is_clean


def test_a_thread_without_connections_asks_django_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "all", None)

    def work() -> bool:
        django_connections.require_no_open_transaction()
        django_connections.give_back(is_clean=True)
        return True

    monkeypatch.setattr(django_connections, "close_all", lambda: None)
    assert in_thread(work)


@contextmanager
def _other() -> Iterator[psycopg.Connection]:
    params = {
        k: v
        for k, v in connection.get_connection_params().items()
        if k in ("dbname", "host", "port", "user", "password")
    }
    with psycopg.connect(**params, autocommit=True) as other:
        yield other
