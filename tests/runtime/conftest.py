from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from tests import settings as test_settings
from tests import stores
from tests.processes import eventually


@pytest.fixture(params=["postgres", "valkey"])
def store(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each kind of store in turn: the default backend is on it, here and in the workers that the test starts.

    What the tasks write down goes to the database all the same.
    """
    if request.param == "valkey":
        stores.empty(stores.valkey())
        monkeypatch.setenv("DJQUEUE_STORE", "redis")
        settings.TASKS = test_settings.tasks("redis")
    return str(request.param)


@pytest.fixture(autouse=True)
def _sessions_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Wait for the sessions of killed processes: the server takes a moment to notice, and the database must be free in the end."""
    if request.node.get_closest_marker("django_db") is None:
        yield
        return
    request.getfixturevalue("transactional_db")
    before = _other_sessions()
    yield
    eventually(lambda: _other_sessions() <= before, 20, lambda: f"Sessions are left: {_other_sessions() - before}")


def _other_sessions() -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in cursor.fetchall()}
