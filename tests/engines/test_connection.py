"""Connections that hang up on a network that swallows everything."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, connections

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres import listener as listener_module
from djqueue.engines.postgres.connection import connect
from djqueue.exceptions import EngineUnavailable
from tests.proxy import Proxy, proxy

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
    with PostgresEngine("default", statement_timeout_seconds=0.3).open_worker() as engine:
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
    assert "wake-ups is gone" in caplog.text


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
