from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

import djqueue
from djqueue import Task, compat, task
from djqueue.compat import InvalidTask
from djqueue.tasks import registry
from tests.app import tasks

BOTH = {
    "default": {"BACKEND": "djqueue.backends.PostgresBackend", "QUEUES": []},
    "immediate": {"BACKEND": f"{compat.FRAMEWORK}.backends.immediate.ImmediateBackend", "QUEUES": []},
    "dummy": {"BACKEND": f"{compat.FRAMEWORK}.backends.dummy.DummyBackend", "QUEUES": []},
}


def plain(a: int = 0) -> int:
    return a


def with_context(context: Any) -> None: ...


def test_the_bare_decorator_and_the_called_one_make_a_task() -> None:
    assert type(task(plain)) is Task
    assert type(task()(plain)) is Task
    assert task()(plain) == task(plain)


def test_the_keywords_become_the_fields_of_the_task() -> None:
    made = task(priority=3, queue_name="mail", takes_context=True, max_attempts=4, backoff=9)(with_context)

    assert (made.priority, made.queue_name, made.takes_context, made.backend) == (3, "mail", True, "default")
    assert (made.max_attempts, made.backoff, made.run_after, made.run_in) == (4, 9, None, None)
    assert made.name == "with_context"
    assert made.module_path == "tests.test_tasks.with_context"


@pytest.mark.skipif(
    djqueue.compat.FRAMEWORK == "django.tasks"
    and "kwargs" not in str(importlib.import_module("inspect").signature(importlib.import_module("django.tasks").task)),
    reason="Django 6.0's decorator takes no other keywords",
)
def test_the_frameworks_own_decorator_makes_djqueues_task_with_its_keywords() -> None:
    made = importlib.import_module(compat.FRAMEWORK).task(max_attempts=7)(plain)

    assert type(made) is Task
    assert made.max_attempts == 7


def test_the_frameworks_own_decorator_makes_djqueues_task() -> None:
    made = importlib.import_module(compat.FRAMEWORK).task(plain)

    assert type(made) is Task
    assert made == task(plain)


def test_the_decorator_makes_djqueues_task_whatever_the_backend() -> None:
    with override_settings(TASKS=BOTH):
        made = task(backend="immediate", max_attempts=2)(plain)

        assert type(made) is Task
        assert made.enqueue(4).return_value == 4


def test_an_unknown_keyword_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(TypeError, match=r"@task does not know max_atempts\. Its keywords are: .*max_attempts"):
        task(max_atempts=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"using\(\) does not know colour"):
        tasks.add.using(colour="red")


@pytest.mark.parametrize("keyword", ["run_after", "run_in"])
def test_run_after_is_refused_by_the_decorator(keyword: str) -> None:
    with pytest.raises(TypeError, match="run_after cannot be defined statically"):
        task(**{keyword: timedelta(1)})


def test_a_task_of_a_task_is_refused() -> None:
    with pytest.raises(TypeError, match="use a function"):
        task(tasks.add)


def test_a_positional_string_is_refused_with_a_hint() -> None:
    with pytest.raises(TypeError, match="queue_name='mail'"):
        task("mail")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_attempts": 0}, "Invalid max_attempts 0: use a whole number from 1"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2**31}, "max_attempts"),
        ({"backoff": -1}, "backoff"),
        ({"backoff": []}, "backoff"),
        ({"backoff": "soon"}, "backoff"),
        ({"priority": 101}, "priority must be a whole number"),
        ({"priority": -101}, "priority must be a whole number"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"priority": float("nan")}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"queue_name": "two words"}, "Invalid queue name"),
        ({"queue_name": ""}, "Invalid queue name"),
        ({"queue_name": "ä"}, "Invalid queue name"),
        ({"queue_name": "x" * 129}, "Invalid queue name"),
        ({"queue_name": None}, "Invalid queue name"),
        ({"takes_context": True}, "first argument of 'context'"),
    ],
)
def test_a_wrong_option_raises_invalid_task(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(compat.InvalidTask, match=sentence):
        task(**options)(plain)


def test_only_functions_at_module_level_are_tasks() -> None:
    def local() -> None: ...

    for function in (local, lambda: None, print, str):
        with pytest.raises(compat.InvalidTask, match="module level"):
            task(function)


def test_a_queue_that_is_not_in_queues_is_refused() -> None:
    with override_settings(TASKS={"default": {**BOTH["default"], "QUEUES": ["default"]}}):
        with pytest.raises(compat.InvalidTask, match="Invalid queue 'mail': the QUEUES"):
            task(queue_name="mail")(plain)


def test_using_changes_a_copy() -> None:
    when = datetime(2030, 1, 1, tzinfo=UTC)

    copied = tasks.add.using(priority=5, queue_name="mail", run_after=when, max_attempts=2)

    assert (copied.priority, copied.queue_name, copied.run_after) == (5, "mail", when)
    assert copied.max_attempts == 2
    assert (tasks.add.priority, tasks.add.max_attempts) == (0, None)
    assert tasks.add.using() == tasks.add


def test_run_after_takes_the_place_of_a_delay_and_the_other_way_round() -> None:
    when = datetime(2030, 1, 1, tzinfo=UTC)

    delayed = tasks.add.using(run_after=when).using(run_after=timedelta(hours=1))
    timed = delayed.using(run_after=when)

    assert (delayed.run_after, delayed.run_in) == (None, timedelta(hours=1))
    assert (timed.run_after, timed.run_in) == (when, None)


@pytest.mark.parametrize(
    "run_after",
    [
        datetime(2030, 1, 1),
        timedelta(days=999_999),
        datetime(9999, 12, 31, tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
    ],
)
def test_a_run_after_that_cannot_be_stored_raises_invalid_task(run_after: Any) -> None:
    with pytest.raises(compat.InvalidTask, match="run_after"):
        tasks.add.using(run_after=run_after)


def test_a_timedelta_becomes_a_time_on_other_backends() -> None:
    with override_settings(TASKS=BOTH):
        copied = tasks.add.using(run_after=timedelta(hours=1), backend="dummy")

        assert copied.run_in is None
        assert timedelta(minutes=59) < copied.run_after - datetime.now(UTC) < timedelta(minutes=61)
        with pytest.raises(compat.InvalidTask, match="run_after"):
            tasks.add.using(run_after=timedelta(hours=1), backend="immediate")


@pytest.mark.parametrize(
    "made",
    [tasks.add, tasks.send_mail, tasks.send_mail.using(run_after=timedelta(1), max_attempts=3)],
    ids=["plain", "options", "copy"],
)
def test_a_task_survives_pickling_and_copying(made: Task) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(made, protocol)) == made  # noqa: S301
    assert copy.deepcopy(made) == made == copy.copy(made)
    assert pickle.loads(pickle.dumps(made)).func is made.func  # noqa: S301


def test_a_pickle_of_what_is_no_task_any_more_raises_value_error() -> None:
    from djqueue.tasks.task import _rebuild

    for name in ("calls", "gone"):
        with pytest.raises(ValueError, match="to point to a Task instance"):
            _rebuild(Task, "tests.app.tasks", name, {})


def test_tasks_are_equal_and_hashable_by_value() -> None:
    assert hash(tasks.send_mail) == hash(tasks.send_mail.using())
    assert tasks.send_mail.backoff == (5, 60)
    assert tasks.add != tasks.add.using(max_attempts=3)
    assert len({tasks.add, tasks.add.using(), tasks.add.using(priority=1)}) == 2


def test_a_task_is_frozen() -> None:
    with pytest.raises(AttributeError):
        tasks.add.priority = 3  # type: ignore[misc]


def test_a_task_can_be_called_directly() -> None:
    from asgiref.sync import async_to_sync

    assert tasks.add.call(1, 2) == 3
    assert tasks.add_async.call(1, 2) == 3
    assert async_to_sync(tasks.add.acall)(1, 2) == 3
    assert async_to_sync(tasks.add_async.acall)(1, 2) == 3
    assert (tasks.add.is_async, tasks.add_async.is_async) == (False, True)


def test_the_public_names_are_importable_before_apps_are_ready() -> None:
    program = (
        "import sys, djqueue\n"
        "assert not [m for m in sys.modules if m.partition('.')[0] == 'django'], 'too early'\n"
        "from djqueue import *\n"
        "for name in djqueue.__all__: getattr(djqueue, name)\n"
        "assert 'djqueue.models' not in sys.modules\n"
        "assert set(djqueue.__all__) <= set(dir(djqueue))\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_public_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        djqueue.nothing  # noqa: B018


def test_a_line_that_no_handler_would_take_is_not_heard() -> None:
    import logging

    from djqueue.compat import _is_written

    logger = logging.Logger("alone", logging.INFO)
    handler = logging.NullHandler()

    assert not _is_written(logger, logging.INFO)
    logger.addHandler(handler)
    assert _is_written(logger, logging.INFO)
    handler.addFilter(lambda record: False)
    assert not _is_written(logger, logging.INFO)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": "30"},
        {"timeout": True},
        {"max_age": -1},
        {"retry_on": "ValueError"},
        {"discard_on": [ValueError, 3]},
        {"transactional": 1},
        {"aliases": "shop.tasks.old"},
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_with_its_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask, match=next(iter(options))):
        task(**options)(tasks.add.func)


def test_a_transactional_task_must_be_sync() -> None:
    async def coroutine() -> None: ...

    coroutine.__qualname__ = "coroutine"
    with pytest.raises(InvalidTask, match="sync"):
        task(transactional=True)(coroutine)


def test_what_belongs_to_the_task_cannot_differ_from_job_to_job() -> None:
    with pytest.raises(TypeError, match="only be given to @task"):
        tasks.add.using(timeout=3)


def test_a_task_is_found_by_its_former_names() -> None:
    assert registry.find("tests.app.tasks.greet_formerly") is tasks.greet
