"""Through a pooler that gives each transaction another session."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection, transaction

from djqueue import api
from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.reading import time_limit
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import NewJob
from djqueue.models import FinishedJob, Job
from tests.backlog import states
from tests.ledger import sessions, tasks
from tests.ledger.models import Entry
from tests.ledger.sessions import LOOK
from tests.processes import environment, eventually, open_to_others, worker
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True)

_POOL_SIZE = 3
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
        f"default_pool_size = {_POOL_SIZE}\nmax_client_conn = 200\nignore_startup_parameters = extra_float_digits\n"
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
    assert 1 <= running.log.count("LISTEN is not available behind a connection pooler") <= 3, running.log
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


_OF_THE_POOLER = {"application_name", "client_encoding", "DateStyle", "standard_conforming_strings", "TimeZone"}
"""Settings that pgbouncer keeps for each client, and sets on the server's session that the client gets."""


def _sessions(port: int) -> list[dict[str, Any]]:
    """Tell what each session that the pooler has holds, by using all of them at once."""
    parameters = {
        name: value
        for name, value in connection.get_connection_params().items()
        if name in ("dbname", "user", "password")
    }
    found = {}
    with ExitStack() as stack:
        for _ in range(_POOL_SIZE):
            client = psycopg.connect(**parameters, host="127.0.0.1", port=port, prepare_threshold=None)
            stack.enter_context(client)
            [pid] = client.execute("SELECT pg_backend_pid()").fetchone() or [0]
            [settings, is_self, *counts] = client.execute(LOOK).fetchone() or []
            left = {name: value for name, value in (settings or {}).items() if name not in _OF_THE_POOLER}
            found[pid] = {"settings": left, "is_self": is_self, "counts": counts}
    assert len(found) == _POOL_SIZE
    return list(found.values())


_CLEAN = [{"settings": {}, "is_self": True, "counts": [0, 0, 0, 0]}] * _POOL_SIZE


def _enqueue_all_kinds() -> list[Any]:
    return [
        tasks.record.enqueue("sync"),
        tasks.arecord.enqueue("async"),
        tasks.write_once.enqueue("transactional", "return"),
        tasks.write_once.enqueue("failed", "raise"),
        tasks.record.using(queue_name="once").enqueue("at most once"),
        tasks.snooze_once.enqueue(),
        tasks.retry_once.enqueue(),
        tasks.fail.enqueue(),
        tasks.record.using(run_after=timedelta(seconds=1)).enqueue("delayed"),
        sessions.limited_writes.enqueue(),
        tasks.query_slowly.enqueue(),
        sessions.sleep_in_a_thread.enqueue("sensitive"),
        sessions.sleep_in_a_thread.enqueue("lent"),
        sessions.run_and_write.enqueue("BEGIN", "left open"),
    ]


@pytest.mark.parametrize("listen", ["0", "1"])
def test_t01_nothing_of_a_worker_is_left_on_the_sessions_of_a_pooler(
    pooler: int, listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also with wake-ups left on by mistake.
    monkeypatch.setenv("DJQUEUE_LISTEN", listen)
    monkeypatch.setenv("DJQUEUE_ONCE", "1")
    results = _enqueue_all_kinds()
    cancelled = tasks.wait_for_cancel.enqueue("waits")
    once = {str(result.id) for result in results if result.task.queue_name == "once"}

    with worker("--queues", "default,once", env=environment(pooler)) as running:
        eventually(lambda: Entry.objects.filter(label="waits").exists(), 60, lambda: running.log)
        api.cancel(int(cancelled.id))
        expected = {str(result.id) for result in (*results, cancelled)}
        eventually(
            lambda: {str(pk) for pk in FinishedJob.objects.values_list("pk", flat=True)} == expected,
            60,
            lambda: (running.log, expected, once),
        )
        busy = _sessions(pooler)
        running.stop()
        assert running.wait() == 0, running.log
        left = _sessions(pooler)

    assert busy == left == _CLEAN
    ends = dict(FinishedJob.objects.values_list("task", "state"))
    assert ends["tests.ledger.tasks.query_slowly"] == "discarded"
    timeouts = FinishedJob.objects.filter(errors__0__exception="djqueue.exceptions.TaskTimeout").count()
    assert timeouts == 3  # the limit works although nothing is set on the session
    assert FinishedJob.objects.filter(state="cancelled").count() == 1


def test_t01_nothing_of_a_killed_worker_is_left_on_the_sessions_of_a_pooler(pooler: int) -> None:
    with worker("--concurrency", "4", env=environment(pooler)) as running:
        sessions.write_and_nap.enqueue()  # one: it takes one of the few sessions that the pooler has
        eventually(lambda: Entry.objects.exists(), 60, lambda: running.log)
        running.kill_all()

    eventually(lambda: _sessions(pooler) == _CLEAN, 20, lambda: _sessions(pooler))


def test_t01_nothing_of_who_enqueues_is_left_on_the_sessions_of_a_pooler(pooler: int) -> None:
    with mock.patch.dict(connection.settings_dict, {"HOST": "127.0.0.1", "PORT": pooler}):
        connection.close()
        for engine in (PostgresEngine("default"), PostgresEngine("default", listen=False)):
            for relaxed in (False, True):
                for _ in range(3):
                    engine.insert([NewJob("tests.task")], relaxed=relaxed)
                    engine.insert([NewJob("tests.task")] * 2, relaxed=relaxed)
                    engine.insert([NewJob("tests.task", unique_key="key")], relaxed=relaxed)
                with engine.together(relaxed=relaxed):
                    engine.insert_many(NewJob("tests.task"), [Encoded("[]", "{}")] * 10)
            engine.pause("default")
            engine.resume("default")
            engine.health()
            engine.counts()
            with time_limit("default", timedelta(seconds=5)):
                assert Job.objects.count() > 0
        connection.close()

    assert _sessions(pooler) == _CLEAN


def test_t01_a_connection_of_ours_has_its_settings_behind_a_pooler_too(pooler: int) -> None:
    with mock.patch.dict(connection.settings_dict, {"HOST": "127.0.0.1", "PORT": pooler}):
        connection.close()
        with Roles(PostgresEngine("default", statement_timeout_seconds=7)) as engine:
            names = ("statement_timeout", "jit", "transaction_isolation", "TimeZone")
            values = engine.attempt(
                lambda own: [own.execute(f"SELECT current_setting('{name}')").fetchone() for name in names]
            )
        connection.close()

    assert values == [("7s",), ("off",), ("read committed",), ("UTC",)]
    assert _sessions(pooler) == _CLEAN
