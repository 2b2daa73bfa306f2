"""A PostgreSQL server that does not let us in is not away: a worker says what to correct, and does not wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from djqueue.contrib import embedded
from djqueue.engines.postgres.denials import unreachable
from djqueue.exceptions import EngineDenied
from tests.processes import worker


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The url of a server that wants a password of the user "locked", and lets "barred" in to no database."""
    with embedded.postgres() as running, psycopg.connect(running.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        admin.execute("CREATE ROLE barred LOGIN")
        admin.execute("CREATE ROLE sleeper NOLOGIN")
        admin.execute("REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
        admin.execute("GRANT CONNECT ON DATABASE postgres TO locked")
        [path] = admin.execute("SHOW hba_file").fetchone() or ("",)
        rules = Path(path)
        rules.write_text(
            "host all locked 127.0.0.1/32 scram-sha-256\nhost all rejected 127.0.0.1/32 reject\n"
            "host all barred,sleeper,nobody_at_all 127.0.0.1/32 trust\nhost nowhere postgres 127.0.0.1/32 trust\n"
            + rules.read_text()
        )
        admin.execute("SELECT pg_reload_conf()")
        parts = urlsplit(running.url)
        yield f"127.0.0.1:{parts.port}"


CASES = [
    ("locked:wrong@", "postgres", "user and password"),
    ("locked@", "postgres", "user and password"),
    ("nobody_at_all@", "postgres", "user and password"),
    ("sleeper@", "postgres", "user and password"),
    ("rejected@", "postgres", "user and password"),
    ("barred@", "postgres", "may not connect"),
    ("postgres@", "nowhere", "does not exist"),
]


@pytest.mark.parametrize(("login", "database", "said"), CASES)
def test_t31_a_refusal_is_told_apart_from_an_outage(server: str, login: str, database: str, said: str) -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(f"postgresql://{login}{server}/{database}", connect_timeout=10)

    error = unreachable("default", caught.value)

    assert isinstance(error, EngineDenied), error
    assert said in str(error)
    assert "DATABASES['default']" in str(error)
    assert "wrong" not in str(error), "no password is told"


@pytest.mark.parametrize(
    "text",
    [
        'connection to server at "127.0.0.1", port 1 failed: Connection refused',
        "FATAL:  the database system is starting up",
        "FATAL:  sorry, too many clients already",
        "could not translate host name",
        "connection timeout expired",
        'connection to server on socket "/run/.s.PGSQL.5432" failed: No such file or directory',
        "server closed the connection unexpectedly",
    ],
)
def test_t31_an_outage_is_no_refusal(text: str) -> None:
    assert not isinstance(unreachable("default", psycopg.OperationalError(text)), EngineDenied)


@pytest.mark.parametrize(
    ("changes", "said"), [({"NAME": "nowhere"}, "does not exist"), ({"USER": "nobody_at_all"}, "user and password")]
)
@pytest.mark.django_db
def test_t31_a_worker_that_is_refused_ends_at_once(changes: dict[str, Any], said: str) -> None:
    parts = {**connection.settings_dict, **changes}
    url = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format_map(parts)

    with worker("-v", "1", env={"DATABASE_URL": url}) as running:
        code = running.wait(120)  # not the ten minutes that it waits for a server that is away

    assert code == 1, running.log
    assert said in running.log
    assert "then start again." in running.log
    assert "Traceback" not in running.log


@pytest.mark.django_db
def test_t31_a_wrong_password_ends_it_at_once_too(server: str) -> None:
    with worker("-v", "1", env={"DATABASE_URL": f"postgresql://locked:wrong@{server}/postgres"}) as running:
        code = running.wait(120)

    assert code == 1, running.log
    assert "user and password" in running.log
