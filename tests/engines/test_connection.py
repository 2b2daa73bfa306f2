"""Connections that hang up on a network that swallows everything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres import listener as listener_module
from djqueue.engines.postgres.connection import connect
from djqueue.exceptions import EngineDenied, EngineUnavailable
from tests.proxy import Proxy, proxy
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def wire(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy that this process's own connections of djqueue go through."""
    settings = connection.settings_dict
    with proxy(settings["HOST"], int(settings["PORT"])) as running:
        wrapper = type(connections["default"])
        parameters = wrapper.get_connection_params

        def through_the_proxy(self):
            return {**parameters(self), "host": "127.0.0.1", "port": running.port}

        monkeypatch.setattr(wrapper, "get_connection_params", through_the_proxy)
        yield running


def test_a_statement_whose_answer_never_comes_is_given_up(wire):
    session = connect("default", "test", statement_timeout_seconds=0.3)
    wire.swallow()
    began = time.monotonic()

    with pytest.raises(psycopg.OperationalError, match="no answer within"):
        session.execute("SELECT 1")

    assert 0.4 <= time.monotonic() - began < 5
    assert session.closed


def test_a_transaction_whose_answer_never_comes_is_given_up_once(wire):
    session = connect("default", "test", statement_timeout_seconds=0.6)
    began = time.monotonic()

    def work() -> None:
        with session.transaction():
            session.execute("SELECT 1")
            wire.swallow()
            session.execute("SELECT 2")

    with pytest.raises(psycopg.OperationalError, match="no answer within"):
        work()

    assert time.monotonic() - began < 1.5  # not once more for the ROLLBACK


def test_the_server_ends_a_slow_statement_first(transactional_db):
    session = connect("default", "test", statement_timeout_seconds=0.3)

    with pytest.raises(psycopg.errors.QueryCanceled):
        session.execute("SELECT pg_sleep(10)")

    assert session.execute("SELECT 1").fetchone() == (1,)
    session.close()


def test_an_engine_connects_again_after_it_hung_up(wire):
    with Roles(PostgresEngine("default", statement_timeout_seconds=0.3)) as engine:
        engine.stage()
        wire.swallow()
        with pytest.raises(EngineUnavailable, match="no answer"):
            engine.stage()
        wire.flow()

        assert engine.stage().count == 0


def test_a_quiet_listener_asks_whether_the_server_is_there(wire, monkeypatch, caplog):
    monkeypatch.setattr(listener_module, "_QUIET_SECONDS", 0.1)
    monkeypatch.setattr(listener_module, "_STATEMENT_TIMEOUT_SECONDS", 0.3)
    with PostgresEngine("default").open_listener() as listener:
        listener.mark(["default"])
        listener.wait(0.2)
        wire.cut()
        wire.refuse()

        listener.mark(["default"])
        wire.accept()
        listener._connect_after = 0
        listener.mark(["default"])

        assert listener._connection is not None
    assert "Lost the connection for wake-ups" in caplog.text


def test_an_unmark_that_is_swallowed_does_not_hang_the_producer(wire, monkeypatch):
    monkeypatch.setattr(listener_module, "_STATEMENT_TIMEOUT_SECONDS", 0.3)
    with PostgresEngine("default").open_listener() as listener:
        listener.mark(["default"])
        wire.swallow()
        listener.unmark()
        began = time.monotonic()
        monkeypatch.setattr(listener, "_connected", lambda: listener._connection)

        listener.mark(["default"])

        assert time.monotonic() - began < 5
        assert listener._connection is None


@pytest.fixture
def app_role(transactional_db: None) -> Iterator[str]:
    """A role that may work on the tables."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE djqueue_test_app")
        cursor.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO djqueue_test_app")
    yield "djqueue_test_app"
    with connection.cursor() as cursor:
        cursor.execute("DROP OWNED BY djqueue_test_app")
        cursor.execute("DROP ROLE djqueue_test_app")


def test_t04_a_connection_of_ours_assumes_the_role_of_the_project(app_role):
    options = {**connection.settings_dict["OPTIONS"], "assume_role": app_role}
    with mock.patch.dict(connection.settings_dict, OPTIONS=options):
        session = connect("default", "test")

    assert session.execute("SELECT current_user::text").fetchone() == (app_role,)
    session.close()


def test_t04_receivers_of_connection_created_see_a_connection_of_ours(transactional_db):
    def prepare(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET search_path = pg_temp, public")
            cursor.execute("SELECT now()")
            assert cursor.fetchone()[0].tzinfo is not None

    connection_created.connect(prepare)
    try:
        session = connect("default", "test")
    finally:
        connection_created.disconnect(prepare)

    assert session.execute("SHOW search_path").fetchone() == ("pg_temp, public",)
    assert session.info.transaction_status == TransactionStatus.IDLE
    session.close()


def test_t04_the_settings_of_a_project_do_not_stop_our_work(transactional_db):
    def prepare(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '10ms'")
            cursor.execute("SET default_transaction_isolation = 'repeatable read'")

    connection_created.connect(prepare)
    try:
        session = connect("default", "test")
    finally:
        connection_created.disconnect(prepare)

    assert session.execute("SHOW statement_timeout").fetchone() == ("30s",)
    assert session.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
    session.close()


def test_t04_a_project_that_opens_connections_itself_opens_ours(transactional_db, monkeypatch):
    opened = []
    original = type(connections["default"]).get_new_connection

    def get_new_connection(self: Any, params: dict[str, Any]) -> Any:
        opened.append(params["application_name"])
        return original(self, params)

    monkeypatch.setattr(type(connections["default"]), "get_new_connection", get_new_connection)

    connect("default", "test").close()

    assert opened == ["djqueue test"]


def test_t04_a_connection_of_ours_is_not_from_djangos_pool(transactional_db):
    options = {**connection.settings_dict["OPTIONS"], "pool": {"min_size": 1}}
    with mock.patch.dict(connection.settings_dict, OPTIONS=options):
        session = connect("default", "test")

    assert not hasattr(session.opened, "_pool")
    session.close()


def test_t04_a_role_that_may_not_be_assumed_is_a_denial(transactional_db):
    options = {**connection.settings_dict["OPTIONS"], "assume_role": "djqueue_test_nobody"}
    with (
        mock.patch.dict(connection.settings_dict, OPTIONS=options),
        pytest.raises(EngineUnavailable, match="djqueue_test_nobody"),
    ):
        connect("default", "test")


def test_t04_missing_rights_name_the_table_and_the_grant(app_role):
    with connection.cursor() as cursor:
        cursor.execute(f"REVOKE ALL ON djqueue_worker FROM {app_role}")
    options = {**connection.settings_dict["OPTIONS"], "assume_role": app_role}
    with (
        mock.patch.dict(connection.settings_dict, OPTIONS=options),
        Roles(PostgresEngine("default")) as engine,
        pytest.raises(EngineDenied, match=r"djqueue_worker.*Grant"),
    ):
        engine.beat([])
