"""What holds of the backend on PostgreSQL alone: jobs are rows of the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from djqueue import InvalidArguments, InvalidOptions, compat, conf
from djqueue.models import Job
from djqueue.stores import PostgresStore
from tests.app import tasks
from tests.defaults import backend
from tests.ledger.models import Entry
from tests.roles import Roles

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)


class TestTransactions:
    @committed
    def test_a_rollback_takes_the_job_with_it(self) -> None:
        def fail() -> None:
            with transaction.atomic():
                tasks.add.enqueue(1)
                tasks.add.enqueue_many([([1], {})])
                assert Job.objects.count() == 2
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()

        assert not Job.objects.exists()

    @committed
    def test_a_rolled_back_savepoint_takes_only_its_jobs_with_it(self) -> None:
        with transaction.atomic():
            tasks.add.enqueue(1)
            with suppress(ZeroDivisionError), transaction.atomic():
                tasks.add.enqueue(2)
                raise ZeroDivisionError
            tasks.add.enqueue(3)

        assert [job.args for job in Job.objects.order_by("id")] == [[1], [3]]

    @committed
    def test_nobody_else_sees_the_job_before_the_commit(self) -> None:
        with transaction.atomic(), Roles(backend().engine) as engine:
            tasks.add.enqueue(1)

            assert engine.fetch("default", 1, uuid4()) == []

    def test_sleepers_are_woken_once_per_transaction(self, django_capture_on_commit_callbacks: Any) -> None:
        with django_capture_on_commit_callbacks() as callbacks:
            for queue in ("a", "b", "a"):
                tasks.add.using(queue_name=queue).enqueue(1)
            tasks.add.enqueue_many(([i], {}) for i in range(25))

        [wake] = callbacks
        assert wake.queues == {"a", "b", "default"}

    def test_a_job_for_later_asks_the_database_for_nothing_at_the_commit(
        self, django_capture_on_commit_callbacks: Any, django_assert_num_queries: Any
    ) -> None:
        with django_capture_on_commit_callbacks() as callbacks:
            tasks.add.using(run_after=timedelta(hours=1)).enqueue(1)

        # Whether it is due soon is only known when the transaction ends.
        with django_assert_num_queries(0):
            for callback in callbacks:
                callback()


def is_relaxed(statement: str) -> bool:
    """Say what an insert says about its commit: ``NOT relaxed OR set_config(…)``."""
    return "NOT true::bool OR set_config('synchronous_commit', 'off', true)" in statement


class TestDurability:
    @pytest.mark.parametrize(
        ("options", "relaxed"),
        [
            ({}, False),
            ({"durability": "relaxed"}, True),
            ({"durability": "relaxed", "queues": {"default": {"durability": "durable"}}}, False),
            ({"queues": {"default": {"durability": "relaxed"}}}, True),
            ({"queues": {"other": {"durability": "relaxed"}}}, False),
        ],
    )
    @committed
    def test_the_queue_goes_before_the_backend(self, options: dict[str, Any], relaxed: bool) -> None:
        entry = {"BACKEND": "djqueue.backends.PostgresBackend", "QUEUES": [], "OPTIONS": options}
        with override_settings(TASKS={"default": entry}), CaptureQueriesContext(connection) as queries:
            tasks.add.enqueue(1)

        assert is_relaxed(queries.captured_queries[0]["sql"]) is relaxed

    @committed
    def test_the_task_goes_before_both(self) -> None:
        with CaptureQueriesContext(connection) as queries:
            tasks.add.using(durability="relaxed").enqueue(1)

        assert is_relaxed(queries.captured_queries[0]["sql"])

    def test_another_word_is_refused(self) -> None:
        with pytest.raises(compat.InvalidTask, match="Invalid durability 'sloppy': use 'durable' or 'relaxed'"):
            tasks.add.using(durability="sloppy")

    @pytest.mark.parametrize(
        "options",
        [
            {"durability": "no"},
            {"queues": {"a": {"durability": "no"}}},
            {"queues": {"a": {"delivery": "exactly_once"}}},
        ],
    )
    def test_and_so_it_is_in_the_options(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidOptions, match="use '"):
            conf.parse(options, conf.PostgresOptions)


class TestRows:
    def test_a_database_error_is_not_swallowed(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE djqueue_job RENAME TO elsewhere")

        with pytest.raises(Exception, match="djqueue_job"):
            tasks.add.enqueue(1)

    def test_a_backend_opens_no_connection_and_parses_nothing_before_it_must(self) -> None:
        made = PostgresStore("other", {"OPTIONS": {"database": "nowhere"}})

        assert made.engine.alias == "nowhere"
        assert made.queues == {"default"}

    @committed
    def test_a_generator_may_use_the_same_connection(self) -> None:
        def items() -> Iterator[Any]:
            for i in range(7):
                yield [Job.objects.count()], {"b": i}

        tasks.add.enqueue_many(items(), batch_size=3)

        assert [job.args[0] for job in Job.objects.order_by("id")] == [0, 0, 0, 3, 3, 3, 6]

    @pytest.mark.parametrize(("bad", "count"), [(6500, 7000), (2500, 3000)])
    @committed
    def test_what_a_generator_writes_goes_with_its_jobs_when_an_item_is_bad(self, bad: int, count: int) -> None:
        def items() -> Iterator[Any]:
            for i in range(count):
                if i % 500 == 0:
                    Entry.objects.create(label=str(i), pid=0)
                yield [object() if i == bad else i], {}

        with pytest.raises(InvalidArguments, match=f"^Item {bad}: "):
            tasks.add.enqueue_many(items())

        assert (Entry.objects.count(), Job.objects.count()) == (0, 0)

    @committed
    def test_what_a_generator_writes_is_committed_with_its_jobs(self) -> None:
        def items() -> Iterator[Any]:
            for i in range(5):
                yield [Entry.objects.create(label=str(i), pid=0).pk], {}

        tasks.add.enqueue_many(items(), batch_size=2)

        assert Job.objects.count() == Entry.objects.count() == 5

    def test_errors_edited_by_hand_do_not_keep_a_result_from_being_read(self) -> None:
        result = tasks.add.enqueue(1)
        Job.objects.update(errors=[{}, {"exception": "no.such.Error", "message": "m"}], attempt=2)

        result.refresh()

        assert [error.exception_class_path for error in result.errors] == ["builtins.Exception", "no.such.Error"]
        assert result.attempts == 2
