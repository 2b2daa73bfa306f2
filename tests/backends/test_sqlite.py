"""RedisBackend beside a database of another vendor, without psycopg."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import stores

Run = Callable[..., str]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "db.sqlite3"


@pytest.fixture
def run(database: Path) -> Run:
    """Run Python in such a project; return what it writes."""
    stores.empty(stores.valkey())
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.sqlite.settings",
        "DJQUEUE_SQLITE": str(database),
        "DJQUEUE_OUTBOX": "1",
        "PYTHONWARNINGS": "error::UserWarning",
    }

    def run(*args: str) -> str:
        done = subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def tables(database: Path) -> set[str]:
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'djqueue%'")
        found = {name for (name,) in rows}
    connection.close()
    return found


def test_migrate_makes_the_outbox_and_no_other_table_forwards_and_backwards(run: Run, database: Path) -> None:
    assert "no issues" in run("-m", "django", "check", "--fail-level", "WARNING")
    run("-m", "django", "migrate", "--verbosity", "0")
    assert tables(database) == {"djqueue_outboxrow"}

    run("-m", "django", "migrate", "djqueue", "zero", "--verbosity", "0")
    assert tables(database) == set()


def test_jobs_are_enqueued_in_transactions_left_behind_and_run(run: Run, database: Path) -> None:
    run("-m", "django", "migrate", "--run-syncdb", "--verbosity", "0")
    run(
        "-c",
        textwrap.dedent(
            """
            import django

            django.setup()

            from django.db import connection, transaction
            from django.db.models import F

            from datetime import timedelta

            from djqueue import stores as entries
            from djqueue.maintenance.relay import Relay
            from djqueue.models import OutboxRow
            from tests.ledger.tasks import record

            with transaction.atomic():
                record.enqueue("sent")
                assert OutboxRow.objects.count() == 1
            assert OutboxRow.objects.count() == 0
            try:
                with transaction.atomic():
                    record.enqueue("never")
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass
            with transaction.atomic():
                record.using(run_after=timedelta(minutes=30)).enqueue("left behind")
                connection.run_on_commit.clear()
            OutboxRow.objects.update(created_at=F("created_at") - timedelta(hours=1))
            backend = entries.store()
            [outbox] = backend.outboxes
            assert 3600 <= outbox.oldest_seconds() < 3660
            Relay(backend.engine, [outbox], is_leader=lambda: True).run_once()
            assert OutboxRow.objects.count() == 0
            """
        ),
    )

    log = run("-m", "django", "runworker", "--drain")

    assert log.count("state=completed") == 2, log
    with sqlite3.connect(database) as connection:
        labels = [label for (label,) in connection.execute("SELECT label FROM ledger_entry ORDER BY label")]
    connection.close()
    assert labels == ["left behind", "sent"]


def test_commands_say_that_the_outbox_has_no_table_yet(run: Run) -> None:
    with pytest.raises(AssertionError, match=r"0001_initial\b.* not applied\. Run manage\.py migrate\."):
        run("-m", "django", "queuestats")
