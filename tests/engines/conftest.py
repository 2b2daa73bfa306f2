"""Engines on a real store, emptied after each test.

The modules say ``available_apps``: then only our tables are emptied, and nobody is told of a migration after each test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection

from djqueue import models
from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.connection import connect
from djqueue.engines.protocol import Engine, Listener
from djqueue.jobs.records import WorkerInfo
from djqueue.models import Job
from tests import stores
from tests.engines.sessions import NEW, prepared
from tests.roles import Roles


@pytest.fixture
def postgres(transactional_db: None) -> PostgresEngine:
    """The PostgreSQL engine. Everything commits: the tables are emptied afterwards."""
    return PostgresEngine("default")


@pytest.fixture
def valkey() -> Iterator[Engine]:
    """The Redis engine on Valkey."""
    yield from _redis_engine(stores.valkey())


@pytest.fixture
def redis7() -> Iterator[Engine]:
    """The Redis engine on the oldest Redis that a distribution of today has."""
    yield from _redis_engine(stores.redis7())


@pytest.fixture
def cluster() -> Iterator[Engine]:
    """The Redis engine on a cluster of three nodes: its keys lie on one, which need not be that of the address."""
    yield from _redis_engine(stores.cluster())


def _redis_engine(url: str) -> Iterator[Engine]:
    from djqueue.engines.redis import RedisEngine

    stores.empty(url)
    yield RedisEngine(url, "djqueue")


@pytest.fixture(params=["postgres", *stores.REDIS])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn: what a test of the seam says must be true of all of them."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def empty(engine: Engine) -> Callable[[], None]:
    """Removes all jobs and what was decided about queues, in the middle of a test."""
    if isinstance(engine, PostgresEngine):
        return lambda: (
            [model.objects.all().delete() for model in (models.Job, models.FinishedJob, models.Queue)] and None
        )
    return lambda: stores.empty(engine.url)


@pytest.fixture
def open_worker(engine: Engine) -> Iterator[Callable[[], Roles]]:
    """Open connections of workers; all of them are closed at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Roles(engine))


@pytest.fixture
def worker(open_worker: Callable[[], Roles]) -> Roles:
    return open_worker()


@pytest.fixture
def register(worker: Roles) -> Callable[[], UUID]:
    """Register a worker and return its id."""

    def register() -> UUID:
        id = uuid4()
        worker.register(
            [WorkerInfo(id=id, name="test", hostname="here", pid=1, queues={"default": None}, concurrency=10)]
        )
        return id

    return register


@pytest.fixture
def me(register: Callable[[], UUID]) -> UUID:
    """The id of a registered worker."""
    return register()


@pytest.fixture
def open_listener(engine: Engine) -> Iterator[Callable[[], Listener]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(engine.open_listener())


@pytest.fixture
def listener(open_listener: Callable[[], Listener]) -> Listener:
    return open_listener()


class AtCommit:
    """Asks the server something for each job that is stored or changed, as the last thing before the commit."""

    def __init__(self, execute: Callable[[str], psycopg.Cursor]) -> None:
        self._execute = execute

    @contextmanager
    def __call__(self, question: str) -> Iterator[None]:
        self._execute("CREATE TABLE at_commit (id bigserial, answer text)")
        self._execute(
            "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE answer text; BEGIN"
            f" EXECUTE $q${question}$q$ INTO answer; INSERT INTO at_commit (answer) VALUES (answer); RETURN NULL; END $$"
        )
        self._execute(
            "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON djqueue_job DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION at_commit()"
        )
        yield
        self._execute("DROP TRIGGER at_commit ON djqueue_job")

    def forget(self) -> None:
        self._execute("TRUNCATE at_commit")

    def seen(self) -> list[str]:
        """Return the answers."""
        return [answer for (answer,) in self._execute("SELECT answer FROM at_commit ORDER BY id")]


@pytest.fixture
def at_commit(spy: psycopg.Connection) -> Iterator[AtCommit]:
    yield AtCommit(spy.execute)
    spy.execute("DROP TABLE IF EXISTS at_commit")
    spy.execute("DROP FUNCTION IF EXISTS at_commit CASCADE")


@pytest.fixture
def spy(transactional_db: None) -> Iterator[psycopg.Connection]:
    """Another session of the same database."""
    with connect("default", "spy") as session:
        yield session


@pytest.fixture
def warm(postgres: PostgresEngine) -> Iterator[PostgresEngine]:
    """An engine whose connection has prepared the insert: the second one does."""
    connection.close()
    postgres.insert([NEW])
    postgres.insert([NEW])
    assert prepared() == 1
    Job.objects.all().delete()
    yield postgres
    connection.close()
