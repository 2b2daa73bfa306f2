from __future__ import annotations

import time

import pytest
from django.db import connection

from djqueue.runtime import django_connections

pytestmark = pytest.mark.django_db


def test_a_statement_never_ends_before_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)

    with django_connections.limit_statements(100.9996), connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        [limit] = cursor.fetchone()

    assert limit == "1s"
