"""What a transaction enqueues for Redis: it goes out with the commit, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from djqueue import EngineUnavailable, InvalidArguments, TaskResultDoesNotExist, compat
from djqueue.jobs.records import NewJob
from djqueue.jobs.states import JobState
from djqueue.outbox import after_commit as deferred_module
from djqueue.stores import RedisStore
from tests.app import tasks
from tests.backends.conftest import Events, jobs_of, names, through
from tests.proxy import Proxy
from tests.test_backends import receiving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("backend")]


class Stop(Exception):
    pass


def args(backend: RedisStore) -> list[Any]:
    return [job.args for job in jobs_of(backend)]


class TestCommit:
    def test_a_job_goes_out_with_the_commit_under_the_id_that_enqueue_returned(self, backend: RedisStore) -> None:
        with transaction.atomic():
            result = tasks.add.enqueue(1, b=2)
            assert jobs_of(backend) == []

        [job] = jobs_of(backend)
        assert (str(job.id), job.args, job.kwargs, job.state) == (result.id, [1], {"b": 2}, JobState.AVAILABLE)
        result.refresh()
        assert result.status == compat.TaskResultStatus.READY

    def test_until_then_it_can_be_seen_by_nobody(self) -> None:
        with transaction.atomic():
            result = tasks.add.enqueue(1)

            with pytest.raises(TaskResultDoesNotExist):
                tasks.add.get_result(result.id)

    def test_a_rollback_takes_it_along(self, backend: RedisStore) -> None:
        with suppress(Stop), transaction.atomic():
            tasks.add.enqueue(1)
            tasks.add.enqueue_many([([2], {}), ([3], {})])
            raise Stop

        assert jobs_of(backend) == []

    def test_a_rolled_back_savepoint_takes_only_its_jobs_along(self, backend: RedisStore) -> None:
        with transaction.atomic():
            tasks.add.enqueue(1)
            with suppress(Stop), transaction.atomic():
                tasks.add.enqueue(2)
                tasks.add.enqueue_many([([3], {})])
                with transaction.atomic():
                    tasks.add.enqueue(4)
                raise Stop
            tasks.add.enqueue(5)
            with transaction.atomic():
                tasks.add.enqueue(6)

        assert args(backend) == [[1], [5], [6]]

    def test_a_rollback_takes_along_what_a_savepoint_has_let_through(self, backend: RedisStore) -> None:
        with suppress(Stop), transaction.atomic():
            with transaction.atomic():
                tasks.add.enqueue(1)
            raise Stop

        assert jobs_of(backend) == []

    def test_the_next_transaction_begins_with_nothing(self, backend: RedisStore) -> None:
        with suppress(Stop), transaction.atomic():
            tasks.add.enqueue(1)
            raise Stop
        with transaction.atomic():
            tasks.add.enqueue(2)

        assert args(backend) == [[2]]

    def test_outside_of_a_transaction_it_is_there_at_once(self, backend: RedisStore) -> None:
        tasks.add.enqueue(1)

        assert args(backend) == [[1]]

    @pytest.mark.parametrize("rolls_back", [False, True])
    def test_the_async_twins_follow_the_transaction_too(self, backend: RedisStore, rolls_back: bool) -> None:
        with suppress(Stop), transaction.atomic():
            async_to_sync(tasks.add.aenqueue)(1)
            async_to_sync(tasks.add.aenqueue_many)([([2], {})])
            assert jobs_of(backend) == []
            if rolls_back:
                raise Stop

        assert args(backend) == ([] if rolls_back else [[1], [2]])

    def test_a_test_case_sees_what_would_go_out(
        self, backend: RedisStore, django_capture_on_commit_callbacks: Any
    ) -> None:
        with transaction.atomic(), django_capture_on_commit_callbacks(execute=True) as callbacks:
            for number in range(5):
                tasks.add.enqueue(number)

        assert len(callbacks) == 1
        assert args(backend) == [[number] for number in range(5)]

    def test_what_was_enqueued_one_by_one_goes_out_together_and_in_order(
        self, backend: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inserted: list[int] = []
        insert = backend.engine.insert

        def counting(jobs: Any, **options: Any) -> Any:
            inserted.append(len(jobs))
            return insert(jobs, **options)

        monkeypatch.setattr(backend.engine, "insert", counting)

        with transaction.atomic():
            for number in range(1100):
                tasks.add.enqueue(number)
                if number == 3:
                    transaction.on_commit(lambda: None)

        assert inserted == [1000, 100]
        assert args(backend) == [[number] for number in range(1100)]

    def test_t69_what_goes_out_together_is_bounded_by_its_size(
        self, backend: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(deferred_module, "_CHARACTERS_TOGETHER", 1000)
        inserted: list[int] = []
        insert = backend.engine.insert
        monkeypatch.setattr(
            backend.engine, "insert", lambda jobs, **options: inserted.append(len(jobs)) or insert(jobs, **options)
        )

        with transaction.atomic():
            for _ in range(5):
                tasks.add.enqueue("x" * 400)
            tasks.add.enqueue("x" * 2000)

        assert inserted == [2, 2, 1, 1]
        assert len(jobs_of(backend)) == 6

    def test_everything_about_a_job_survives_the_wait(self, backend: RedisStore) -> None:
        task = tasks.send_mail.using(run_after=timedelta(hours=1), max_age=timedelta(hours=2), priority=-7)

        with transaction.atomic():
            waiting = task.enqueue("Zoë 🦊")

        [job] = jobs_of(backend)
        assert waiting.job.state is JobState.SCHEDULED
        assert (job.queue, job.priority, job.max_attempts, job.args) == ("mail", -7, 5, ["Zoë 🦊"])
        assert job.scheduled_at - job.inserted_at == timedelta(hours=1)
        assert job.expires_at - job.inserted_at == timedelta(hours=2)

    def test_the_signal_is_sent_by_enqueue(self) -> None:
        with receiving(compat.task_enqueued) as seen, transaction.atomic():
            result = tasks.add.enqueue(1)
            assert [sent["task_result"] for sent in seen] == [result]

    def test_without_autocommit_nobody_would_tell_of_the_commit_so_it_is_refused(self, backend: RedisStore) -> None:
        transaction.set_autocommit(False)
        try:
            with pytest.raises(transaction.TransactionManagementError, match="on_commit"):
                tasks.add.enqueue(1)
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

        assert jobs_of(backend) == []


class TestMany:
    def test_all_of_them_go_out_with_the_commit(self, backend: RedisStore) -> None:
        with transaction.atomic():
            bulk = tasks.add.enqueue_many((([number], {}) for number in range(2500)), batch_size=1000)
            assert jobs_of(backend) == []

        assert [str(job.id) for job in jobs_of(backend)] == list(bulk.ids)
        assert args(backend) == [[number] for number in range(2500)]

    def test_many_wait_in_a_file(self, backend: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(deferred_module, "_IN_MEMORY_BYTES", 10_000)

        with transaction.atomic():
            tasks.add.enqueue_many(([number], {}) for number in range(2500))
            [(_, hook, _)] = connection.run_on_commit
            assert hook._texts._rolled

        assert len(jobs_of(backend)) == 2500
        assert hook._texts.closed is False
        file = hook._texts
        del hook
        assert file.closed

    def test_a_bad_item_leaves_nothing_of_its_call_in_a_transaction_that_goes_on(self, backend: RedisStore) -> None:
        def items() -> Iterator[Any]:
            yield from (([number], {}) for number in range(25))
            yield [object()], {}

        with transaction.atomic():
            tasks.add.enqueue(1)
            with pytest.raises(InvalidArguments, match=r"^Item 25: "):
                tasks.add.enqueue_many(items(), batch_size=10)
            tasks.add.enqueue(2)

        assert args(backend) == [[1], [2]]

    def test_outside_of_a_transaction_all_are_read_before_any_is_stored(self, backend: RedisStore) -> None:
        def items() -> Iterator[Any]:
            for number in range(25):
                assert jobs_of(backend) == []
                yield [number], {}

        told: list[int] = []
        bulk = tasks.add.enqueue_many(items(), batch_size=10, on_progress=told.append)

        assert told == [10, 20, 25]
        assert [str(job.id) for job in jobs_of(backend)] == list(bulk.ids)
        assert args(backend) == [[number] for number in range(25)]


class TestFailure:
    def test_a_server_that_is_gone_at_the_commit_is_told_and_breaks_nothing(
        self, use_redis: Callable[..., RedisStore], away: Proxy, events: Events, caplog: pytest.LogCaptureFixture
    ) -> None:
        backend = use_redis(url=through(away))
        called: list[str] = []

        with transaction.atomic():
            transaction.on_commit(lambda: called.append("before"))
            one = tasks.add.enqueue(1)
            bulk = tasks.noop.enqueue_many([([2], {}), ([3], {})])
            transaction.on_commit(lambda: called.append("after"))
            away.refuse()

        assert called == ["before", "after"]
        lost = [fields for name, fields in events if name == "djqueue.enqueue.lost"]
        assert [(fields["job"], fields["task"]) for fields in lost] == [
            (int(one.id), "tests.app.tasks.add"),
            (int(bulk.ids[0]), "tests.app.tasks.noop"),
        ]
        assert (lost[1]["count"], lost[1]["last_job"]) == (2, int(bulk.ids[1]))
        assert [record.levelname for record in caplog.records if "enqueue.lost" in record.message] == ["ERROR"] * 2
        away.accept()
        assert jobs_of(backend) == []

    def test_a_connection_that_died_meanwhile_costs_nothing(
        self, use_redis: Callable[..., RedisStore], away: Proxy, events: Events
    ) -> None:
        backend = use_redis(url=through(away))

        with transaction.atomic():
            tasks.add.enqueue(1)
            away.cut()

        assert args(backend) == [[1]]
        assert "djqueue.enqueue.lost" not in names(events)

    def test_a_server_that_is_gone_at_enqueue_is_an_error_there(
        self, use_redis: Callable[..., RedisStore], away: Proxy
    ) -> None:
        use_redis(url=through(away))
        away.refuse()

        with pytest.raises(EngineUnavailable), transaction.atomic():
            tasks.add.enqueue(1)

    def test_one_that_the_store_refuses_keeps_no_other_from_its_way(self, backend: RedisStore, events: Events) -> None:
        good, bad = NewJob("a.b"), NewJob("c.d", max_attempts=2**70)  # a number that no message can hold
        with transaction.atomic():
            waiting = backend.inserter()
            assert waiting is not None
            [first], [refused], [last] = (waiting.insert([job]) for job in (good, bad, good))

        assert [job.id for job in jobs_of(backend)] == [first.id, last.id]
        assert [(name, fields["job"]) for name, fields in events] == [("djqueue.enqueue.lost", refused.id)]
