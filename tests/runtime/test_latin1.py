"""A worker on a database that is not in UTF-8."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.processes import environment, worker

pytestmark = pytest.mark.django_db(transaction=True)

ENQUEUE = """
import django; django.setup()
from tests.ledger import tasks
tasks.fail_in_unicode.enqueue(3)
tasks.fail_in_unicode.enqueue(1_000)
tasks.return_euro.enqueue()
tasks.noop.enqueue()
"""


@pytest.fixture
def latin1() -> Iterator[dict[str, str]]:
    """The environment of a process on a database in LATIN1."""
    env = environment()
    url = env["DATABASE_URL"]
    name = urlsplit(url).path.lstrip("/") + "_latin1"
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"  # type: ignore[arg-type]
        )
    try:
        yield {**env, "DATABASE_URL": url.removesuffix(urlsplit(url).path) + f"/{name}"}
    finally:
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


def test_t24_a_failure_whose_text_the_database_cannot_hold_is_retried_as_always(latin1: dict[str, str]) -> None:
    for command in (["-m", "django", "migrate", "-v", "0"], ["-c", ENQUEUE]):
        subprocess.run([sys.executable, *command], env=latin1, check=True, timeout=120)

    with worker("--drain", env=latin1) as running:
        assert running.wait(120) == 0, running.log

    with psycopg.connect(latin1["DATABASE_URL"]) as session:
        rows: list[tuple[str, int, str, Any]] = session.execute(
            "SELECT task, attempt, state, errors FROM djqueue_finishedjob ORDER BY id"
        ).fetchall()
    assert [(attempt, state) for _, attempt, state, _ in rows] == [
        (2, "discarded"),
        (2, "discarded"),
        (1, "discarded"),
        (1, "completed"),
    ], running.log
    assert [error["message"] for error in rows[0][3]] == [r"\u20ac\u20ac\u20ac \xe9", r"\u20ac\u20ac\u20ac \xe9"]
    assert "characters left out" in rows[1][3][0]["traceback"]
    assert "could not be stored" in rows[2][3][0]["message"]
