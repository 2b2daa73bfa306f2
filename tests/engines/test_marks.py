"""The mark of a sleep against inserts that hold the question open until their commit: no wake-up is lost between the two."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection, connections

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.listener import PostgresListener
from djqueue.engines.postgres.statements import sql
from djqueue.jobs.records import NewJob

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NEW = NewJob("tests.task")
LONG = 20.0
QUIET = 0.3
FOREVER_MILLISECONDS = 20_000


@pytest.fixture
def sleeper(postgres: PostgresEngine) -> Iterator[PostgresListener]:
    with postgres.open_listener() as listener:
        listener.mark([])  # connects
        yield listener


@pytest.fixture
def storing(postgres: PostgresEngine) -> Iterator[psycopg.Connection]:
    """A session that has stored a job, as ``insert_one.sql`` does in autocommit, and stands before its commit."""
    with connect("default", "race") as session:
        session.autocommit = False
        params = {**NEW._asdict(), "now": None, "asks": True, "relaxed": False}
        assert session.execute(sql("insert_one"), params).fetchone()[3] is False
        yield session


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def jobs() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM djqueue_job")
        return int(cursor.fetchone()[0])


def wait_until_the_mark_waits() -> None:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            if cursor.fetchone()[0]:
                return
        time.sleep(0.005)  # the server tells nobody when a session begins to wait
    raise AssertionError("nobody waits")


def insert_on_a_thread(pool: ThreadPoolExecutor, engine: PostgresEngine) -> Future[object]:
    def insert() -> object:
        try:
            return engine.insert([NEW])
        finally:
            connections.close_all()

    return pool.submit(insert)


def test_a_mark_waits_for_the_commit_of_a_job_that_is_being_stored(sleeper, storing, background, monkeypatch):
    monkeypatch.setattr("djqueue.engines.postgres.listener._BEHIND_MILLISECONDS", FOREVER_MILLISECONDS)

    mark = background.submit(sleeper.mark, ["default"])
    wait_until_the_mark_waits()
    assert not mark.done()
    storing.commit()
    mark.result(LONG)

    assert sleeper._marked == {"default"}
    assert jobs() == 1  # the look that follows a mark sees it


def test_it_waits_for_a_rollback_too(sleeper, storing, background, monkeypatch):
    monkeypatch.setattr("djqueue.engines.postgres.listener._BEHIND_MILLISECONDS", FOREVER_MILLISECONDS)

    mark = background.submit(sleeper.mark, ["default"])
    wait_until_the_mark_waits()
    storing.rollback()
    mark.result(LONG)

    assert sleeper._marked == {"default"}


def test_who_stores_a_job_while_a_mark_waits_does_not_prolong_it_and_wakes(
    postgres, sleeper, storing, background, monkeypatch
):
    monkeypatch.setattr("djqueue.engines.postgres.listener._BEHIND_MILLISECONDS", FOREVER_MILLISECONDS)
    mark = background.submit(sleeper.mark, ["default"])
    wait_until_the_mark_waits()

    insert_on_a_thread(background, postgres).result(LONG)
    assert not mark.done()
    storing.commit()
    mark.result(LONG)

    assert sleeper.wait(LONG) == {"default"}


def test_another_queue_is_no_concern_of_the_mark(sleeper, storing):
    sleeper.mark(["other"])

    assert sleeper._marked == {"other"}


def test_behind_a_commit_that_takes_too_long_nobody_may_sleep(sleeper, storing, monkeypatch):
    monkeypatch.setattr("djqueue.engines.postgres.listener._BEHIND_MILLISECONDS", 1)
    assert not sleeper.mark(["default"])
    assert not sleeper.mark(["default"])
    assert sleeper._marked == set()

    storing.commit()
    assert not sleeper.mark(["default"])  # only now: there is one more look to take
    assert sleeper.mark(["default"])
    assert sleeper._marked == {"default"}


def test_a_mark_that_another_sleeper_has_is_not_waited_for(postgres, sleeper, storing, monkeypatch):
    storing.commit()
    monkeypatch.setattr("djqueue.engines.postgres.listener._BEHIND_MILLISECONDS", FOREVER_MILLISECONDS)
    with postgres.open_listener() as other:
        other.mark(["default"])

        sleeper.mark(["default"])

        assert sleeper._marked == set()


def test_two_sleepers_behind_the_same_commit_do_not_wait_for_each_other(
    postgres, sleeper, storing, background, monkeypatch
):
    monkeypatch.setattr("djqueue.engines.postgres.listener._BEHIND_MILLISECONDS", FOREVER_MILLISECONDS)
    mark = background.submit(sleeper.mark, ["default"])
    wait_until_the_mark_waits()

    with postgres.open_listener() as other:
        other.mark(["default"])  # somebody is about to have it
        assert other._marked == set()

    storing.commit()
    mark.result(LONG)
    assert sleeper._marked == {"default"}


@pytest.mark.parametrize("threads", [1, 4])
def test_no_job_is_missed_while_many_are_stored(postgres, background, threads):
    """A sleeper that only ever looks after a mark or a wake-up sees every job: no poll helps it here."""
    each = 150

    def store() -> None:
        try:
            for _ in range(each):
                postgres.insert([NEW])
        finally:
            connections.close_all()

    with postgres.open_listener() as listener, ThreadPoolExecutor(threads) as pool:
        storing = [pool.submit(store) for _ in range(threads)]
        seen = 0
        until = time.monotonic() + LONG
        while seen < threads * each and time.monotonic() < until:
            may_sleep = listener.mark(["default"])
            if (found := jobs()) > seen:
                seen = found
                listener.unmark()
            elif may_sleep and not listener.wait(LONG):
                break  # slept through: nobody woke us
        for each_one in storing:
            each_one.result(LONG)

    assert seen == threads * each


def test_a_mark_stands_until_it_is_given_up(postgres, sleeper):
    sleeper.mark(["default"])

    for _ in range(3):
        postgres.insert([NEW])
        assert sleeper.wait(LONG) == {"default"}


def test_a_mark_that_is_given_up_is_offered_to_the_other_sleepers(postgres, sleeper):
    with postgres.open_listener() as one, postgres.open_listener() as two:
        sleeper.mark(["default"])
        for other in (one, two):
            assert not other.mark(["default"])  # another has it, and one is enough
            assert other.mark(["default"])

        sleeper.unmark()

        assert [one.wait(LONG), two.wait(LONG)] == [{"default"}] * 2
        assert sleeper.wait(QUIET) == set()
        assert not one.mark(["default"])  # for a moment nobody had it
        postgres.insert([NEW])
        assert one.wait(LONG) == {"default"}


def test_only_what_is_given_up_is_free(postgres, sleeper):
    sleeper.mark(["a", "b"])
    sleeper.unmark(["a"])

    postgres.insert([NEW._replace(queue="a"), NEW._replace(queue="b")])

    assert sleeper.wait(LONG) == {"b"}
