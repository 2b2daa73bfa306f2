from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.processes import eventually


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
