from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.dispatch import Signal
from django.test import override_settings

from djqueue import (
    InvalidArguments,
    JobTooLarge,
    TaskContext,
    TaskResult,
    UnknownTask,
    UnknownTaskResult,
    compat,
)
from djqueue.jobs.encoding import encode_error
from djqueue.jobs.states import JobState
from djqueue.tasks import registry
from djqueue.tasks.new_job import new_job
from djqueue.tasks.results import STATUS, from_claim
from tests.app import tasks
from tests.defaults import WORKER, ack, backend, committed, default_store, entry, fetch, stored, the_job

__all__ = ["default_store"]
Status = compat.TaskResultStatus
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("default_store")]


@contextmanager
def receiving(signal: Signal, raises: Exception | None = None) -> Iterator[list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []

    def receiver(**kwargs: Any) -> None:
        seen.append(kwargs)
        if raises:
            raise raises

    signal.connect(receiver)
    try:
        yield seen
    finally:
        signal.disconnect(receiver)


def an_error(message: str, attempt: int) -> str:
    try:
        raise ValueError(message)
    except ValueError as error:
        return encode_error(error, attempt=attempt, worker=WORKER)


class TestEnqueue:
    def test_it_stores_a_job_and_returns_its_result(self) -> None:
        result = tasks.add.enqueue(1, b=2)

        job = the_job()
        assert (job.task, job.args, job.kwargs) == ("tests.app.tasks.add", [1], {"b": 2})
        assert (job.queue, job.priority, job.max_attempts, job.state) == ("default", 0, 20, "available")
        assert type(result) is TaskResult
        assert (result.id, result.status, result.backend) == (str(job.id), Status.READY, "default")
        assert (result.args, result.kwargs, result.task) == ([1], {"b": 2}, tasks.add)
        assert (result.errors, result.worker_ids, result.attempts, result.is_finished) == ([], [], 0, False)
        assert result.enqueued_at == job.inserted_at
        assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
        assert result.job.state is JobState.AVAILABLE
        assert "_return_value=None" in repr(result)
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value

    def test_the_options_of_the_task_reach_the_row(self) -> None:
        when = datetime(2040, 1, 1, tzinfo=UTC)

        tasks.send_mail.using(run_after=when, priority=-3).enqueue("a@example.org")

        job = the_job()
        assert (job.queue, job.priority, job.max_attempts) == ("mail", -3, 5)
        assert (job.state, job.scheduled_at) == ("scheduled", when)

    def test_a_timedelta_counts_from_the_insert_by_the_clock_of_the_database(self) -> None:
        result = tasks.add.using(run_after=timedelta(hours=2)).enqueue(1)

        job = the_job()
        assert job.scheduled_at - job.inserted_at == timedelta(hours=2)
        assert result.job.state is JobState.SCHEDULED
        assert result.status == Status.READY

    def test_the_default_of_max_attempts_comes_from_the_options(self) -> None:
        with override_settings(TASKS=entry(OPTIONS={"max_attempts": 3})):
            tasks.add.enqueue(1)

        assert the_job().max_attempts == 3

    @pytest.mark.parametrize("argument", [datetime(2026, 1, 1, tzinfo=UTC), {1: 2}, "\0", float("nan"), object()])
    def test_arguments_that_cannot_be_stored_store_nothing(self, argument: Any) -> None:
        with pytest.raises(InvalidArguments, match=r"args\[0\]"):
            tasks.noop.enqueue(argument)

        assert stored() == []

    def test_arguments_above_the_limit_store_nothing(self) -> None:
        with pytest.raises(JobTooLarge, match="262,144"):
            tasks.noop.enqueue("x" * 262_144)

        assert stored() == []

    def test_a_parameter_may_be_called_self(self) -> None:
        tasks.noop.enqueue(self=1)

        assert the_job().kwargs == {"self": 1}

    def test_the_arguments_of_the_result_are_those_of_the_job_and_nobody_elses(self) -> None:
        values = [(1, 2)]

        result = tasks.noop.enqueue(values, key=b"x")
        values.append((3, 4))

        assert (result.args, result.kwargs) == ([[[1, 2]]], {"key": "x"})

    def test_a_task_that_was_not_made_by_djqueue_is_taken_too(self) -> None:
        foreign = compat.Task(
            func=tasks.add.func,
            priority=0,
            backend="default",
            queue_name="default",
            run_after=None,
            takes_context=False,
        )

        assert foreign.enqueue(1).task == tasks.add

    def test_an_invalid_task_is_refused_again_at_enqueue(self) -> None:
        stale = tasks.add.using(queue_name="other")

        with (
            override_settings(TASKS=entry(QUEUES=["default"])),
            pytest.raises(compat.InvalidTask, match="Invalid queue 'other': the QUEUES of 'default' are default"),
        ):
            stale.enqueue(1)


class TestSignals:
    def test_task_enqueued_is_sent_by_the_class_of_the_backend_with_the_result(self) -> None:
        with receiving(compat.task_enqueued) as seen:
            result = tasks.add.enqueue(1)

        [sent] = seen
        assert (sent["sender"], sent["task_result"]) == (type(compat.task_backends["default"]), result)

    def test_a_receiver_that_raises_changes_nothing(self) -> None:
        with receiving(compat.task_enqueued, raises=ValueError("receiver")):
            result = tasks.add.enqueue(1)

        assert the_job().id == int(result.id)

    def test_the_framework_logs_what_was_enqueued(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG, compat.task_logger.name):
            result = tasks.add.enqueue(1)

        assert f"id={result.id} path=tests.app.tasks.add enqueued" in caplog.text

    def test_nothing_is_sent_when_nothing_is_stored(self) -> None:
        with receiving(compat.task_enqueued) as seen, pytest.raises(InvalidArguments):
            tasks.noop.enqueue(object())

        assert seen == []

    def test_enqueue_many_sends_one_per_job(self) -> None:
        with receiving(compat.task_enqueued) as seen:
            bulk = tasks.add.enqueue_many((([i], {}) for i in range(7)), batch_size=3)

        assert [sent["task_result"].id for sent in seen] == list(bulk.ids)
        assert [sent["task_result"].args for sent in seen] == [[i] for i in range(7)]


class TestEnqueueMany:
    @pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
    def test_it_stores_every_item_in_order(self, count: int) -> None:
        bulk = tasks.add.enqueue_many((([i], {"b": i}) for i in range(count)), batch_size=10)

        jobs = stored()
        assert (bulk.count, len(bulk.ids), bulk.duplicates) == (count, count, 0)
        assert list(bulk.ids) == [str(job.id) for job in jobs]
        assert [(job.args, job.kwargs) for job in jobs] == [([i], {"b": i}) for i in range(count)]

    def test_the_ids_are_a_sequence_of_strings(self) -> None:
        bulk = tasks.add.enqueue_many([([i], {}) for i in range(5)])

        assert tasks.add.get_result(bulk.ids[-1]).args == [4]
        assert bulk.ids[1:3] == list(bulk.ids)[1:3]

    @pytest.mark.parametrize("place", [0, 3, 12])
    @pytest.mark.parametrize(
        "item", [5, "ab", ([1],), ([1], {}, 3), ("a", {}), ([1], []), None, ([object()], {}), ([1], {1: 2})]
    )
    @committed
    def test_a_bad_item_is_told_with_its_position_and_nothing_is_stored(self, place: int, item: Any) -> None:
        items: list[Any] = [([i], {}) for i in range(15)]
        items[place] = item

        with pytest.raises(InvalidArguments, match=f"^Item {place}: "):
            tasks.add.enqueue_many(items, batch_size=5)

        assert stored() == []

    @committed
    def test_a_generator_that_raises_leaves_nothing(self) -> None:
        def items() -> Iterator[Any]:
            yield from (([i], {}) for i in range(7))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            tasks.add.enqueue_many(items(), batch_size=3)

        assert stored() == []

    def test_more_items_than_parameters_of_the_protocol_are_no_problem(self) -> None:
        assert tasks.add.enqueue_many((([i], {}) for i in range(70_000)), batch_size=70_000).count == 70_000

    @pytest.mark.parametrize("batch_size", [0, -1, 1.5, True, 10**9])
    def test_a_wrong_batch_size_is_refused(self, batch_size: Any) -> None:
        with pytest.raises(ValueError, match="batch_size"):
            tasks.add.enqueue_many([], batch_size=batch_size)

    def test_other_backends_take_the_items_one_by_one(self) -> None:
        settings = {"default": {"BACKEND": f"{compat.FRAMEWORK}.backends.dummy.DummyBackend", "QUEUES": []}}

        with override_settings(TASKS=settings):
            assert tasks.add.enqueue_many([([1], {}), ([2], {})]).count == 2


class TestGetResult:
    @committed
    def test_a_job_is_followed_from_ready_to_successful(self) -> None:
        result = tasks.add.enqueue(1, 2)

        claimed = fetch()
        result.refresh()
        assert (result.status, result.worker_ids, result.attempts) == (Status.RUNNING, [str(WORKER)], 1)
        assert result.last_attempted_at is not None

        ack(claimed, JobState.COMPLETED, result="3")
        result.refresh()
        assert (result.status, result.return_value, result.is_finished) == (Status.SUCCESSFUL, 3, True)
        assert result.worker_ids == [str(WORKER)]
        assert result.finished_at >= result.enqueued_at
        assert result.job.state is JobState.COMPLETED
        assert tasks.add.get_result(result.id) == result

    @committed
    def test_a_job_is_followed_through_its_failures(self) -> None:
        result = tasks.fail.enqueue()

        ack(fetch(), JobState.AVAILABLE, error=an_error("first", 1))
        result.refresh()
        assert (result.status, result.attempts, len(result.errors)) == (Status.READY, 1, 1)
        assert result.worker_ids == [str(WORKER)]

        ack(fetch(), JobState.DISCARDED, error=an_error("second", 2))
        result.refresh()
        assert (result.status, result.attempts, result.worker_ids) == (Status.FAILED, 2, [str(WORKER)] * 2)
        assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
        assert "second" in result.errors[-1].traceback
        with pytest.raises(ValueError, match="Task failed"):
            _ = result.return_value

    @committed
    def test_a_cancelled_job_failed_and_counts_the_attempt_that_cancelled_it(self) -> None:
        result = tasks.cancel.enqueue()

        ack(fetch(), JobState.CANCELLED)

        result.refresh()
        assert (result.status, result.attempts) == (Status.FAILED, 1)

    @committed
    def test_a_snoozed_job_has_spent_no_attempt(self) -> None:
        result = tasks.snooze.enqueue()

        ack(fetch(), JobState.SCHEDULED, delay=60.0, is_spent=False)

        result.refresh()
        assert (result.status, result.attempts, result.worker_ids) == (Status.READY, 0, [])

    def test_every_state_has_a_status(self) -> None:
        assert set(STATUS) == set(JobState)

    @pytest.mark.parametrize(
        "id",
        [
            "",
            "abc",
            "\N{ARABIC-INDIC DIGIT ONE}",
            "1e3",
            "-1",
            "0",
            "007",
            " 1",
            "1\n",
            "1.0",
            str(10**30),
            10**30,
            2**63,
            None,
            uuid4(),
        ],
    )
    def test_an_odd_id_does_not_exist(self, id: Any) -> None:
        with pytest.raises(compat.TaskResultDoesNotExist):
            tasks.add.get_result(id)
        with pytest.raises(compat.TaskResultDoesNotExist):
            compat.default_task_backend.get_result(id)

    def test_an_id_of_no_job_does_not_exist(self) -> None:
        with pytest.raises(compat.TaskResultDoesNotExist, match="Job '9223372036854775807' does not exist"):
            tasks.add.get_result(str(2**63 - 1))

    def test_the_id_of_another_tasks_job_is_a_mismatch(self) -> None:
        result = tasks.add.enqueue(1)

        with pytest.raises(compat.TaskResultMismatch, match=r"tests\.app\.tasks\.add"):
            tasks.noop.get_result(result.id)

    def test_a_job_of_an_unknown_task_says_so(self) -> None:
        new = new_job(tasks.add, [1], {}, backend().settings)
        [job] = backend().engine.insert([new._replace(task="gone.tasks.hello")])

        with pytest.raises(UnknownTaskResult, match=r"gone\.tasks\.hello") as caught:
            compat.task_backends["default"].get_result(str(job.id))
        assert isinstance(caught.value, UnknownTask)
        assert isinstance(caught.value, compat.TaskResultDoesNotExist)
        with pytest.raises(compat.TaskResultMismatch):
            tasks.add.get_result(str(job.id))

    def test_the_task_of_a_result_has_the_settings_of_the_row(self) -> None:
        when = datetime(2040, 1, 1, tzinfo=UTC)
        result = tasks.add.using(queue_name="mail", priority=7, run_after=when).enqueue(1)

        with override_settings(TASKS=entry(QUEUES=["default"])):
            task = compat.task_backends["default"].get_result(result.id).task

        assert (task.queue_name, task.priority, task.run_after, task.func) == ("mail", 7, when, tasks.add.func)
        assert registry.find("tests.app.tasks.add") is tasks.add


class TestAsync:
    @committed
    def test_the_async_twins_do_the_same(self) -> None:
        async def run() -> None:
            result = await tasks.add.aenqueue(1, b=2)
            found = await tasks.add.aget_result(result.id)
            assert found == result
            assert (await compat.default_task_backend.aget_result(result.id)).id == result.id
            await found.arefresh()
            bulk = await tasks.add.aenqueue_many([([1], {})])
            assert bulk.count == 1
            with pytest.raises(compat.TaskResultDoesNotExist):
                await tasks.add.aget_result("x")
            with pytest.raises(compat.TaskResultMismatch):
                await tasks.noop.aget_result(result.id)

        async_to_sync(run)()

        assert len(stored()) == 2


class TestClaimedResult:
    @committed
    def test_a_claim_gives_a_running_result_and_a_context(self) -> None:
        enqueued = tasks.tell_attempt.using(max_attempts=4).enqueue(1, 2)
        ack(fetch(), JobState.AVAILABLE, error=an_error("first", 1))

        result = from_claim(fetch(), tasks.tell_attempt, "default", WORKER)
        context = TaskContext(task_result=result)

        assert (result.id, result.status, result.attempts) == (enqueued.id, Status.RUNNING, 2)
        assert (result.args, result.kwargs) == ([1, 2], {})
        assert result.worker_ids == [str(WORKER), str(WORKER)]
        assert (context.attempt, context.job.max_attempts, context.job.is_last_attempt) == (2, 4, False)
        assert isinstance(context, compat.TaskContext)
        assert json.dumps(tasks.tell_attempt.call(context, 1))


class TestContract:
    def test_everything_is_supported(self) -> None:
        assert compat.task_backends["default"].supports_defer
        assert compat.task_backends["default"].supports_async_task
        assert compat.task_backends["default"].supports_get_result
        assert compat.task_backends["default"].supports_priority
        assert issubclass(compat.task_backends["default"].task_class, compat.Task)

    @pytest.mark.parametrize("func", [tasks.add.func, tasks.add_async.func])
    def test_sync_and_async_functions_are_valid(self, func: Any) -> None:
        compat.task_backends["default"].validate_task(tasks.add.using())
        assert tasks.add_async.enqueue(1).status == Status.READY

    def test_queues_of_none_allow_every_name(self) -> None:
        assert compat.task_backends["default"].queues == set()
        tasks.add.using(queue_name="what:ever.you-like_1").enqueue(1)

    @pytest.mark.parametrize("priority", [-100, 0, 100, 1.0])
    def test_priorities_from_minus_to_plus_a_hundred_are_stored(self, priority: Any) -> None:
        tasks.add.using(priority=priority).enqueue(1)

        assert the_job().priority == priority

    @override_settings(USE_TZ=False)
    def test_a_naive_run_after_is_allowed_without_time_zones(self) -> None:
        tasks.add.using(run_after=datetime(2040, 1, 1)).enqueue(1)
