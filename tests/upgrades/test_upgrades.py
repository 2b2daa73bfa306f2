"""A database of each released version, brought forward to the newest migration with jobs in it, and the older version's worker on it.

``v0_1/tables.sql`` is the schema as ``pg_dump`` shows it, with a job in each state; the other files are statements with all that they
include, as that version's worker sends them. They are never edited: a release that changes tables or statements adds a directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection, connections, migrations, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql

VERSIONS = sorted(path.name for path in Path(__file__).parent.glob("v*") if path.is_dir())
ALIVE, DEAD = UUID(int=0xA), UUID(int=0xD)
COUNT = "SELECT count(*) FROM djqueue_job UNION ALL SELECT count(*) FROM djqueue_finishedjob"


@pytest.fixture
def upgrade(django_db_blocker: Any) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    """Return a function that makes the database of a version, migrates it, and returns a connection to it."""
    name = "djqueue_upgrade"
    with django_db_blocker.unblock():
        server = connection.copy()
        server.settings_dict["NAME"] = "postgres"
        django = connection.copy("upgrade")
        django.settings_dict["NAME"] = name
        connections["upgrade"] = django  # where Django looks for its table of migrations
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        with server.cursor() as cursor:
            cursor.execute(drop)
            cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

        def migrate(
            version: str, planted: migrations.operations.base.Operation | None = None
        ) -> psycopg.Connection[Any]:
            with django.cursor() as cursor:
                cursor.execute(text(version, "tables"))
            to_the_newest(django, planted)
            return django.connection  # type: ignore[no-any-return]

        yield migrate
        del connections["upgrade"]
        django.close()
        with server.cursor() as cursor:
            cursor.execute(drop)
        server.close()


def to_the_newest(django: BaseDatabaseWrapper, planted: migrations.operations.base.Operation | None) -> None:
    executor = MigrationExecutor(django)
    targets = executor.loader.graph.leaf_nodes("djqueue")
    state = executor.migrate(targets)
    if planted is not None:
        migration = migrations.Migration("planted", "djqueue")
        migration.operations = [planted]
        with django.schema_editor() as editor:
            migration.apply(executor.loader.project_state(targets) if state is None else state, editor)


def text(version: str, name: str) -> str:
    return (Path(__file__).parent / version / f"{name}.sql").read_text(encoding="utf-8")


def work(version: str, database: psycopg.Connection[Any]) -> None:
    """Do what the worker of a version does: enqueue, stage, rescue, fetch, acknowledge, beat; check what it gets back."""

    def run(name: str, **params: Any) -> list[tuple[Any, ...]]:
        return database.execute(text(version, name), params).fetchall()

    stored = run(
        "insert_one", queue="default", task="shop.tasks.pay", args="[9]", kwargs="{}", priority=5, max_attempts=3,
        scheduled_at=None, delay=None, expires_at=None, max_age=None, meta="{}", now=None, asks=False, relaxed=False,
    )  # fmt: skip
    [(id, state, _, is_asleep)] = stored
    assert (state, is_asleep) == ("available", False)

    [(count, queues, _, _)] = run("stage", limit=10, ids=None, skip=[], since=None, now=None)
    assert (count, queues) == (2, ["default"])

    [(requeued, discarded, queues, cancelled, left)] = run(
        "rescue", workers=[DEAD], ran_id=[2], ran_claim=[1], as_noted=False, kept_id=[], kept_claim=[], reason="Lost.",
        limit=10, now=None,
    )  # fmt: skip
    assert (requeued, discarded, queues, cancelled, left) == (1, 0, ["default"], 0, 0)

    claimed = {row[0]: row for row in run("fetch", queue="default", limit=10, worker=ALIVE, now=None)}
    assert next(iter(claimed)) == id
    assert sorted(claimed) == [1, 2, 3, 4, id]
    assert claimed[1][2:8] == ("default", "shop.tasks.pay", "[1]", '{"a": 1}', 1, 20)
    assert json.loads(claimed[1][15]) == {"note": "kept"}
    assert [error["attempt"] for error in json.loads(claimed[4][14])] == [1]

    ids = sorted(claimed)
    outcome = {"state": ["completed"] * 5, "started_ago": [2000] * 5, "finished_ago": [1000] * 5, "result": ["1"] * 5}
    claims = [claimed[id][1] for id in ids]
    accepted = run("ack", id=ids, claim=claims, **outcome, error=[None] * 5, is_spent=[True] * 5, now=None)
    assert sorted(accepted) == [(1, "key"), *[(id, None) for id in ids[1:]]]

    beats = {worker: (beat, is_dead) for worker, beat, is_dead in run("beat", workers=[ALIVE], draining=[])}
    assert beats == {ALIVE: (0, False), DEAD: (0, True)}

    assert database.execute(COUNT).fetchall() == [(1,), (8,)]
    [kept] = database.execute(
        "SELECT task, args, kwargs, meta, result FROM djqueue_finishedjob WHERE id = 1"
    ).fetchall()
    assert kept == ("shop.tasks.pay", *map(as_read, ["[1]", '{"a": 1}', '{"note": "kept"}', "1"]))


def as_read(text: str) -> Any:
    # Django tells its connections to leave JSON as text.
    return text


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_survive_the_migrations(version, upgrade):
    database = upgrade(version)

    live = database.execute("SELECT id, state, args FROM djqueue_job ORDER BY id").fetchall()
    assert live == [
        (id, state, f"[{id}]")
        for id, state in enumerate(["available", "executing", "scheduled", "retryable", "suspended"], 1)
    ]
    ended = database.execute("SELECT id, state, args FROM djqueue_finishedjob ORDER BY id").fetchall()
    assert ended == [(id, state, f"[{id}]") for id, state in enumerate(["completed", "discarded", "cancelled"], 6)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_older_worker_goes_on_with_the_newest_tables(version, upgrade):
    work(version, upgrade(version))


@pytest.mark.parametrize(
    "planted",
    [
        migrations.RemoveField("finishedjob", "meta"),
        migrations.RenameField("job", "attempted_at", "claimed_at"),
        migrations.RemoveField("worker", "is_draining"),
        migrations.AddField("job", "tenant", models.TextField(default="")),
    ],
    ids=["dropped from the history", "renamed", "dropped from the workers", "added without a database default"],
)
def test_a_migration_that_stops_the_older_worker_is_noticed(planted, upgrade):
    database = upgrade(VERSIONS[0], planted)

    with pytest.raises((psycopg.errors.UndefinedColumn, psycopg.errors.NotNullViolation)):
        work(VERSIONS[0], database)
