"""``durability="relaxed"``: which commits do not wait for the disk, and that nobody else's are among them."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import connection, transaction

from djqueue import InvalidArguments, Unique
from djqueue.engines.postgres import PostgresEngine
from djqueue.jobs.records import NewJob, UniqueRule
from djqueue.models import Job
from tests.app import tasks

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NEW = NewJob("tests.task")
KEYED = NEW._replace(unique_key="k")
SETTING = "SHOW synchronous_commit"
RULES = {
    "live": UniqueRule(),
    "window": UniqueRule(window=timedelta(hours=1)),
    "replace": UniqueRule(replace=True, reschedule=True),
    "follow up": UniqueRule(follow_up=True),
}
relaxed = tasks.add.using(durability="relaxed")


@contextmanager
def server_side_binding():
    connection.close()
    with mock.patch.dict(connection.settings_dict["OPTIONS"], {"server_side_binding": True}):
        yield
        connection.close()


def setting() -> str:
    with connection.cursor() as cursor:
        cursor.execute(SETTING)
        return str(cursor.fetchone()[0])


def pairs(count: int) -> Any:
    return (((number,), {}) for number in range(count))


class TestEngine:
    @pytest.mark.parametrize("listen", [True, False])
    @pytest.mark.parametrize("binding", [nullcontext, server_side_binding])
    def test_a_single_job_does_not_wait_for_the_disk(self, transactional_db, at_commit, listen, binding):
        engine = PostgresEngine("default", listen=listen)

        with binding(), at_commit(SETTING):
            for is_relaxed in (True, False, True, True):
                engine.insert([NEW], relaxed=is_relaxed)

        assert at_commit.seen() == ["off", "on", "off", "off"]
        assert Job.objects.count() == 4

    def test_nor_do_several(self, postgres, at_commit):
        with at_commit(SETTING):
            postgres.insert([NEW, NEW], relaxed=True)

        assert at_commit.seen() == ["off"] * 2

    @pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
    def test_nor_does_one_with_a_unique_key(self, postgres, at_commit, rule):
        with at_commit(SETTING):
            postgres.insert([KEYED._replace(delay=timedelta(hours=1))], rule=rule, relaxed=True)
            postgres.insert([KEYED], rule=rule, relaxed=True)
            if rule.follow_up:
                Job.objects.update(state="executing", ready_at="2020-01-01T00:00Z")
                at_commit.forget()
                postgres.insert([KEYED], rule=rule, relaxed=True)
                postgres.insert([KEYED], rule=rule, relaxed=True)

        assert set(at_commit.seen()) == {"off"}
        assert len(at_commit.seen()) == (2 if rule.follow_up or rule.replace else 1)

    @pytest.mark.parametrize("job", [NEW, KEYED])
    def test_the_setting_ends_with_the_insert(self, postgres, job):
        postgres.insert([job], relaxed=True)

        assert setting() == "on"

    @pytest.mark.parametrize("job", [NEW, KEYED])
    @pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
    def test_it_is_ignored_in_the_callers_transaction(self, postgres, job, rule):
        with transaction.atomic():
            for _ in range(2):
                postgres.insert([job], rule=rule, relaxed=True)
                assert setting() == "on"

    @pytest.mark.parametrize("job", [NEW, KEYED])
    def test_and_in_one_that_django_does_not_know_of(self, postgres, job):
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            postgres.insert([job], relaxed=True)
            assert setting() == "on"
            cursor.execute("ROLLBACK")

    def test_and_in_manual_transaction_management(self, postgres):
        transaction.set_autocommit(False)
        try:
            postgres.insert([NEW], relaxed=True)
            with postgres.together(relaxed=True):
                postgres.insert_many(NEW, [("[]", "{}")])
            assert setting() == "on"
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)


class TestBackend:
    @pytest.mark.parametrize("count", [3, 25])
    def test_enqueue_many_does_not_wait_for_the_disk(self, transactional_db, at_commit, count):
        with at_commit(SETTING):
            relaxed.enqueue_many(pairs(count), batch_size=10)
            tasks.add.enqueue_many(pairs(1))

        assert at_commit.seen() == ["off"] * count + ["on"]
        assert setting() == "on"

    def test_nor_does_it_with_unique_keys(self, transactional_db, at_commit):
        with at_commit(SETTING):
            relaxed.using(unique=True).enqueue_many(pairs(25), batch_size=10)

        assert at_commit.seen() == ["off"] * 25

    @pytest.mark.parametrize("unique", [True, Unique(period=timedelta(hours=1)), Unique(debounce=timedelta(hours=1))])
    def test_nor_does_a_single_job_with_one(self, transactional_db, at_commit, unique):
        with at_commit(SETTING):
            relaxed.using(unique=unique).enqueue(1)

        assert at_commit.seen() == ["off"]

    @pytest.mark.parametrize("unique", [None, True])
    def test_enqueue_many_leaves_the_callers_transaction_alone(self, transactional_db, unique):
        task = relaxed.using(unique=unique) if unique else relaxed
        with transaction.atomic():
            task.enqueue_many(pairs(25), batch_size=10)
            assert setting() == "on"

    def test_a_bad_item_leaves_nothing(self, transactional_db):
        with pytest.raises(InvalidArguments, match="Item 15"):
            relaxed.enqueue_many([*pairs(15), ((object(),), {})], batch_size=10)

        assert not Job.objects.exists()
        assert setting() == "on"

    def test_a_sleeper_is_woken_after_it(self, postgres):
        with postgres.open_listener() as listener:
            listener.mark(["default"])

            relaxed.enqueue_many(pairs(25), batch_size=10)

            assert listener.wait(10) == {"default"}
