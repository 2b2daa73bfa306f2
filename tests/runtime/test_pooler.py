"""Through a pooler that gives each transaction another session."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from django.db import connection, transaction

from djqueue.engines.postgres import PostgresEngine
from djqueue.models import FinishedJob, Job
from djqueue.records import NewJob
from tests.backlog import states
from tests.ledger import tasks
from tests.processes import environment, eventually, open_to_others, worker

pytestmark = pytest.mark.django_db(transaction=True)

_PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@pytest.fixture
def pooler(transactional_db: None, tmp_path: Path) -> Iterator[int]:
    """The port of a pgbouncer in transaction mode before the test's database."""
    if _PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed")
    settings = connection.settings_dict
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = int(chosen.getsockname()[1])
    password = f" password={settings['PASSWORD']}" if settings["PASSWORD"] else ""
    config = tmp_path / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n{settings['NAME']} = host={settings['HOST']} port={settings['PORT']} user={settings['USER']}{password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n"
        "default_pool_size = 3\nmax_client_conn = 200\nignore_startup_parameters = extra_float_digits\n"
    )
    config.chmod(0o644)
    open_to_others(tmp_path)
    user = 65534 if os.getuid() == 0 else None  # it refuses to run as root
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [_PGBOUNCER, str(config)], user=user, group=user, stdout=log, stderr=subprocess.STDOUT, cwd="/"
        )
    try:
        eventually(lambda: _answers(port), 10, lambda: (tmp_path / "log").read_text())
        yield port
    finally:
        process.kill()
        process.wait(10)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_b62_a_thousand_jobs_pass_through_a_transaction_pooler_by_polling(pooler: int) -> None:
    tasks.count.enqueue_many(((number,), {}) for number in range(1000))

    with worker("--processes", "2", env=environment(pooler)) as running:
        eventually(lambda: FinishedJob.objects.count() == 1000, 60, lambda: running.log)
        late = tasks.record.enqueue("polled")
        eventually(lambda: FinishedJob.objects.count() == 1001, 10, lambda: running.log)
        running.stop()
        assert running.wait() == 0, running.log

    late.refresh()
    assert late.return_value == "polled"
    assert states() == {"completed": 1001}
    assert set(FinishedJob.objects.values_list("attempt", flat=True)) == {1}
    # Behind a pooler a name may be another client's statement: nothing is prepared there in the first place.
    assert "prepared statement" not in running.log
    assert "service.failure" not in running.log
    # Once for each process's listener: of two workers, and of the leader's stager.
    assert 1 <= running.log.count("There is a pooler") <= 3, running.log
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert cursor.fetchone() == (0,)


def test_what_is_enqueued_through_a_pooler_is_not_prepared(pooler: int) -> None:
    # With wake-ups left on by mistake: the pooler is noticed, not believed.
    engine = PostgresEngine("default")
    with mock.patch.dict(connection.settings_dict, {"HOST": "127.0.0.1", "PORT": pooler}):
        connection.close()
        for _ in range(5):
            engine.insert([NewJob("tests.task")])
            with transaction.atomic():
                engine.insert([NewJob("tests.task"), NewJob("tests.task")])
                engine.insert([NewJob("tests.task")])
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_prepared_statements")
            assert cursor.fetchone() == (0,)
        connection.close()

    assert Job.objects.count() == 20
