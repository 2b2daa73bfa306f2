"""Workers whose login has no rights of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from django.db import connection

from djqueue.models import FinishedJob
from tests.ledger import tasks
from tests.processes import environment, eventually, worker

pytestmark = pytest.mark.django_db(transaction=True)

_LOGIN, _APP = "djqueue_test_login", "djqueue_test_app"


@pytest.fixture
def login(transactional_db: None) -> Iterator[str]:
    """The address of the database for a login that has rights only as another role."""
    settings = connection.settings_dict
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {_APP}")
        cursor.execute(f"CREATE ROLE {_LOGIN} LOGIN NOINHERIT PASSWORD 'secret'")
        cursor.execute(f"GRANT {_APP} TO {_LOGIN}")
        cursor.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {_APP}")
        cursor.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {_APP}")
    host, name = quote(str(settings["HOST"]), safe=""), settings["NAME"]
    yield f"postgresql://{_LOGIN}:secret@{host}:{settings['PORT']}/{name}"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP OWNED BY {_APP}, {_LOGIN}")
        cursor.execute(f"DROP ROLE {_LOGIN}")
        cursor.execute(f"DROP ROLE {_APP}")


def test_t04_a_worker_assumes_the_role_that_django_assumes(login: str) -> None:
    tasks.record.enqueue("as another role")
    tasks.write_once.enqueue("in a transaction", "return")

    with worker(env={"DATABASE_URL": f"{login}?assume_role={_APP}"}) as running:
        eventually(lambda: FinishedJob.objects.count() == 2, 30, lambda: running.log)
        running.stop()
        assert running.wait() == 0, running.log

    assert set(FinishedJob.objects.values_list("state", flat=True)) == {"completed"}
    assert "service.failure" not in running.log


def test_t04_a_worker_without_rights_ends_with_a_sentence(login: str) -> None:
    with worker(env={"DATABASE_URL": login}) as running:
        assert running.wait(30) == 1, running.log

    assert "Grant" in running.log
    assert "permission denied for table djqueue_" in running.log
    assert "Traceback" not in running.log


def test_a_scheduler_without_rights_ends_with_a_sentence(login: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "django", "runcron"],
        env={**environment(), "DATABASE_URL": login},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ended.returncode == 1, ended.stderr
    assert "CommandError: The database 'default' denies djqueue a permission" in ended.stderr
    assert "Grant" in ended.stderr
    assert "Traceback" not in ended.stderr
