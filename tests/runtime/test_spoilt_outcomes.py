"""Every attempt ends with an outcome, whatever a project's code does while it is made."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, timedelta, tzinfo
from datetime import timezone as fixed_timezone
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from djqueue import compat, hooks, propagation, telemetry
from djqueue.jobs.encoding import encode_error
from djqueue.jobs.states import JobState
from djqueue.jobs.tracebacks import format_error
from djqueue.tasks.backoff import LIMIT
from tests.backlog import ended, jobs, states, stored
from tests.ledger import spoilt, tasks
from tests.processes import drain, eventually, worker
from tests.runtime.test_executor import Bench


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("store")
class TestWorkers:
    def test_t57_every_attempt_ends_with_an_outcome_and_a_drain_ends(self) -> None:
        raised = {
            (kind, task.is_async): task.enqueue(kind)
            for kind in spoilt.RAISED
            for task in (spoilt.raise_spoilt, spoilt.araise_spoilt)
        }
        others = [
            task.enqueue()
            for task in (spoilt.backoff_exits, spoilt.backoff_interrupts, spoilt.rules_fail, spoilt.arules_fail)
        ]
        good = tasks.noop.enqueue()

        log = drain("--concurrency", "4")

        assert stored(good).state == JobState.COMPLETED
        assert states() == {"completed": 1, "retryable": len(raised) + len(others)}, log
        assert {job.attempt for job in jobs()} == {1}
        for result in others:
            [error] = stored(result).errors
            assert error["exception"] == "builtins.ValueError"
            assert error["message"].startswith("the real error")
        for result in others[2:]:
            assert "SystemExit: cannot be asked" in stored(result).errors[0]["message"]
        for is_async in (False, True):
            assert "cannot be handled" in stored(raised["textless", is_async]).errors[0]["message"]
            assert "AttributeError" in stored(raised["snooze", is_async]).errors[0]["message"]

    def test_t57_a_worker_stops_at_once_after_outcomes_that_could_not_be_made(self) -> None:
        for kind in spoilt.RAISED:
            spoilt.raise_spoilt.enqueue(kind)
        with worker() as running:
            eventually(lambda: states() == {"retryable": len(spoilt.RAISED)}, explain=lambda: running.log)
            stopped = time.monotonic()
            running.stop()
            assert running.wait() == 0, running.log

        assert time.monotonic() - stopped < 25, running.log  # the shutdown timeout is 30 seconds

    @pytest.mark.parametrize("verbosity", ["0", "1", "2"])
    def test_t14_the_context_is_that_of_the_attempt_whoever_listens(self, verbosity: str) -> None:
        last, snoozed = spoilt.succeed_at_last.enqueue(), spoilt.attempt_of.enqueue()

        with worker("--concurrency", "1", "-v", verbosity) as running:
            eventually(lambda: ended() == 2, explain=lambda: running.log)

        assert (stored(last).state, stored(last).result) == (JobState.COMPLETED, 2)
        assert stored(snoozed).result == [1, 1]


def _fail(*args: Any, **kwargs: Any) -> NoReturn:
    raise SystemExit("not a task's business")


@contextmanager
def _swallow() -> Iterator[None]:
    with suppress(BaseException):
        yield


@contextmanager
def _fail_at_the_end() -> Iterator[None]:
    yield
    _fail()


class TestExecutor:
    @pytest.mark.parametrize("task", [tasks.noop, tasks.find])
    def test_t57_a_signal_receiver_that_exits_changes_no_outcome(self, task: Any) -> None:
        bench = Bench(1)
        compat.task_started.connect(_fail)
        compat.task_finished.connect(_fail)
        try:
            bench.run((task, []), (task, []))
        finally:
            compat.task_started.disconnect(_fail)
            compat.task_finished.disconnect(_fail)

        assert bench.acks.put_back == [(0, JobState.COMPLETED, True), (1, JobState.COMPLETED, True)]

    @pytest.mark.parametrize("task", [tasks.noop, tasks.find])
    def test_t57_a_log_handler_or_a_telemetry_handler_that_exits_changes_no_outcome(self, task: Any) -> None:
        class Exits(logging.Handler):
            emit = _fail  # type: ignore[assignment]

        bench, handler = Bench(1), Exits()
        logging.getLogger("djqueue").addHandler(handler)
        detach = telemetry.attach(_fail)
        try:
            bench.run((task, []), (task, []))
        finally:
            logging.getLogger("djqueue").removeHandler(handler)
            detach()

        assert bench.acks.put_back == [(0, JobState.COMPLETED, True), (1, JobState.COMPLETED, True)]

    @pytest.mark.parametrize("restore", [_fail, lambda value: _fail_at_the_end(), lambda value: _swallow()])
    def test_t57_a_carrier_changes_no_outcome(self, restore: Any) -> None:
        propagation.register("odd", capture=lambda: 1, restore=restore)
        meta = json.dumps({"context": {"odd": 1}})
        try:
            with propagation.restored(meta):
                pass
            with pytest.raises(ValueError, match="the task's"), propagation.restored(meta):
                raise ValueError("the task's")
        finally:
            propagation.unregister("odd")

    @pytest.mark.parametrize("task", [tasks.noop, tasks.find])
    def test_t57_an_outcome_that_cannot_be_made_is_a_failure_of_its_attempt(
        self, task: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = Bench(1)
        monkeypatch.setattr("djqueue.runtime.lifecycle.ack_of", _fail)

        bench.run((task, []), (task, []))

        assert bench.acks.put_back == [(0, JobState.RETRYABLE, True), (1, JobState.RETRYABLE, True)]

    def test_t17_a_receiver_is_heard_that_takes_the_place_of_the_frameworks_own(self) -> None:
        seen: list[str] = []

        def note(sender: Any, task_result: Any, **kwargs: Any) -> None:
            seen.append(task_result.id)

        own = [entry[1]() for entry in compat.task_started.receivers]
        bench = Bench(1)
        for receiver in own:
            compat.task_started.disconnect(receiver)
        compat.task_started.connect(note)
        try:
            bench.run((tasks.noop, []))
        finally:
            compat.task_started.disconnect(note)
            for receiver in own:
                compat.task_started.connect(receiver)

        assert seen == ["0"]
        assert not compat.has_listeners(compat.task_started)

    def test_t14_async_receivers_and_those_that_use_the_database_are_called_off_the_event_loop(self) -> None:
        import asyncio

        seen: list[bool] = []

        def note(sender: Any, task_result: Any, **kwargs: Any) -> None:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                seen.append(True)
            else:
                seen.append(False)

        compat.task_finished.connect(note)
        try:
            Bench(1).run((tasks.find, []))
        finally:
            compat.task_finished.disconnect(note)

        assert seen == [True]


@pytest.mark.parametrize("make", [spoilt.Textless, spoilt.Faceless])
def test_t57_no_exception_breaks_what_is_written_of_it(make: Any) -> None:
    error = make()

    entry = json.loads(encode_error(error, attempt=1, problem=make()))

    assert entry["exception"].endswith(make.__name__)
    assert type(format_error(error)) is str
    assert type(hooks.text_of(spoilt.BrokenText("x"))) is str
    hooks.report(error, "%s", error)


@pytest.mark.parametrize("delay", [5**20, -(5**20), float("inf"), float("nan"), "soon", None, 10**400])
def test_t61_a_delay_that_no_clock_knows_is_capped_and_never_raises(delay: Any) -> None:
    from djqueue import Retry, Snooze
    from djqueue.tasks.backoff import delay_seconds

    for error in (Retry(delay), Snooze(delay)):
        assert 0 <= delay_seconds(error.delay, 1) <= LIMIT
    for far in (timedelta.max, timedelta.min):
        assert abs(Retry(far).delay) == abs(Snooze(far).delay) == timedelta(days=365)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("zone", "carried"),
    [
        (timezone.get_fixed_timezone(180), 10800),
        (fixed_timezone(timedelta(seconds=-3601)), -3601),
        (ZoneInfo("Etc/GMT-3"), "Etc/GMT-3"),
        (ZoneInfo("Asia/Kolkata"), "Asia/Kolkata"),
        (UTC, 0),
        (ZoneInfo("UTC"), None),
    ],
)
def test_t20_any_time_zone_is_carried_by_its_key_or_else_its_offset(zone: tzinfo, carried: Any) -> None:
    with timezone.override(zone):
        meta = propagation.capture()
    assert json.loads(meta).get("context", {}).get("time_zone") == carried

    with propagation.restored(meta):
        there = timezone.localtime()
    assert there.utcoffset() == timezone.localtime(timezone=zone).utcoffset()
