"""Engines on a real store, emptied after each test.

The modules say ``available_apps``: then only our tables are emptied, and nobody is told of a migration after each test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from uuid import UUID, uuid4

import psycopg
import pytest

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.connection import connect
from djqueue.engines.protocol import Engine, Listener, WorkerEngine
from djqueue.records import WorkerInfo


@pytest.fixture
def postgres(transactional_db: None) -> PostgresEngine:
    """The PostgreSQL engine. Everything commits: the tables are emptied afterwards."""
    return PostgresEngine("default")


@pytest.fixture(params=["postgres"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn: what a test of the seam says must be true of all of them."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def open_worker(engine: Engine) -> Iterator[Callable[[], WorkerEngine]]:
    """Open connections of workers; all of them are closed at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(engine.open_worker())


@pytest.fixture
def worker(open_worker: Callable[[], WorkerEngine]) -> WorkerEngine:
    return open_worker()


@pytest.fixture
def register(worker: WorkerEngine) -> Callable[[], UUID]:
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
def at_commit(transactional_db: None) -> Iterator[AtCommit]:
    with connect("default", "spy") as session:
        yield AtCommit(session.execute)
        session.execute("DROP TABLE IF EXISTS at_commit")
        session.execute("DROP FUNCTION IF EXISTS at_commit CASCADE")
