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
    yield
    eventually(lambda: not _has_other_sessions(), 20, lambda: "A session is left.")


def _has_other_sessions() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend')"
        )
        return bool(cursor.fetchone()[0])
