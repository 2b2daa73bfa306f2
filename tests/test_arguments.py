"""What an enqueue refuses at once, because no attempt could ever run it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from djqueue import compat, crontab, task
from djqueue.exceptions import InvalidArguments, InvalidCron
from djqueue.models import Job
from djqueue.tasks.signatures import check_arguments
from tests.app import tasks

pytestmark = pytest.mark.django_db


def two(a: int, b: int = 0) -> None: ...
def keyword_only(a: int, *, urgent: bool, note: str = "") -> None: ...
def positional_only(a: int, /, b: int = 0) -> None: ...
def free(*args: Any, **kwargs: Any) -> None: ...
def positional_and_free(name: str, /, **kwargs: Any) -> None: ...
def with_context(context: Any, user_id: int) -> None: ...
def context_and_free(context: Any, *args: Any) -> None: ...


def adding(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function("added", *args, **kwargs)

    return wrapper


@adding
def decorated(connection: str, user_id: int) -> None: ...


REFUSED = [
    (task(two), (), {}, "'a'"),
    (task(two), (1, 2, 3), {}, "too many positional arguments"),
    (task(two), (1,), {"c": 2}, "'c'"),
    (task(two), (1,), {"a": 2}, "'a'"),
    (task(keyword_only), (1,), {}, "'urgent'"),
    (task(keyword_only), (1, True), {}, "too many positional arguments"),
    (task(positional_only), (), {"a": 1}, "'a'"),
    (task(takes_context=True)(with_context), (), {}, "'user_id'"),
    (task(takes_context=True)(with_context), (1, 2), {}, "too many positional arguments"),
    (task(takes_context=True)(with_context), (1,), {"context": 1}, "'context'"),
    (tasks.add_async, (), {"b": 1}, "'a'"),
]
TAKEN = [
    (task(two), (1,), {}),
    (task(two), (), {"b": 1, "a": 2}),
    (task(keyword_only), (1,), {"urgent": True}),
    (task(positional_only), (1, 2), {}),
    (task(positional_and_free), ("x",), {"name": "y"}),
    (task(free), (1, 2, 3), {"self": 1, "args": 2}),
    (task(takes_context=True)(with_context), (1,), {}),
    (task(takes_context=True)(context_and_free), (1, 2), {}),
    (task(decorated), (1,), {}),
]


@pytest.mark.parametrize(("job", "args", "kwargs", "named"), REFUSED)
def test_t26_arguments_that_do_not_fit_are_refused_at_once(job: Any, args: Any, kwargs: Any, named: str) -> None:
    for _ in range(2):  # a refusal is not remembered as a fit
        with pytest.raises(InvalidArguments, match=named) as caught:
            job.enqueue(*args, **kwargs)
    with pytest.raises(InvalidArguments, match=named):
        job.using(priority=3).enqueue(*args, **kwargs)
    with pytest.raises(InvalidArguments, match=f"Item 0: .*{named}"):
        job.enqueue_many([(args, kwargs)])

    assert isinstance(caught.value, TypeError)
    assert job.module_path in str(caught.value)
    assert not Job.objects.exists()


@pytest.mark.parametrize(("job", "args", "kwargs"), TAKEN)
def test_t26_arguments_that_fit_are_taken(job: Any, args: Any, kwargs: Any) -> None:
    job.enqueue(*args, **kwargs)
    job.enqueue_many([(args, kwargs)] * 2)

    assert Job.objects.count() == 3


def test_t26_the_error_names_the_parameters_and_no_value() -> None:
    with pytest.raises(InvalidArguments, match=r"Its parameters are: user_id\.") as caught:
        task(takes_context=True)(with_context).enqueue("secret", "more")

    assert "secret" not in str(caught.value)


def test_t26_a_task_of_the_framework_is_checked_too() -> None:
    fields = {"priority": 0, "backend": "default", "queue_name": "default", "run_after": None, "takes_context": False}

    with pytest.raises(InvalidArguments, match="'a'"):
        compat.Task(func=tasks.add.func, **fields).enqueue()


def test_t26_async_too() -> None:
    with pytest.raises(InvalidArguments, match="'a'"):
        async_to_sync(tasks.add.aenqueue)()


def test_t26_the_crontab_says_the_same() -> None:
    with pytest.raises(InvalidCron, match="cannot be called with these arguments"):
        crontab.add("nightly", tasks.add, "0 3 * * *", args=[1, 2, 3])


def test_t26_ever_new_names_of_a_free_task_take_no_memory_for_ever() -> None:
    from djqueue.tasks.signatures import _fitting as fitting

    job = task(free)
    for number in range(2000):
        check_arguments(job, (), {f"name{number}": 1})

    assert len(fitting(job.func, False)) <= 1000


@pytest.mark.parametrize(
    ("run_after", "seconds"), [(10, 10), (0.5, 0.5), ("2 days", 172_800), ("PT90M", 5400), (timedelta(hours=1), 3600)]
)
def test_t27_run_after_takes_any_duration(run_after: Any, seconds: float) -> None:
    tasks.add.using(run_after=run_after).enqueue(1)

    job = Job.objects.get()
    assert job.scheduled_at is not None
    assert (job.scheduled_at - job.inserted_at).total_seconds() == seconds


@pytest.mark.parametrize(
    "run_after",
    ["soon", "10", True, float("nan"), float("inf"), -1, 10**400, [], object(), timedelta.max, timedelta.min],
)
def test_t27_anything_else_is_refused_in_a_sentence(run_after: Any) -> None:
    with pytest.raises(compat.InvalidTask, match=r"Invalid run_after .*: use a time"):
        tasks.add.using(run_after=run_after)


def test_t27_a_time_is_still_a_time() -> None:
    when = datetime(2040, 1, 1, tzinfo=UTC)

    assert tasks.add.using(run_after=when).run_after == when
    assert tasks.add.using(run_after=when).using(run_after=10).run_after is None


@pytest.mark.parametrize("name", ["delay", "apply_async", "send", "defer"])
def test_t27_what_other_systems_call_says_what_to_call_here(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no {name}\(\).*enqueue"):
        getattr(tasks.add, name)(1)
    assert not hasattr(tasks.add, name)


@pytest.mark.parametrize(
    ("option", "value"), [("timeout", "90s"), ("max_age", "2 days"), ("timeout", 3), ("timeout", "PT1M")]
)
def test_t30_options_of_tasks_take_the_same_durations(option: str, value: Any) -> None:
    assert isinstance(getattr(task(**{option: value})(two), option), timedelta)


@pytest.mark.parametrize("value", ["90", "", "0s", 0, -1, True, timedelta(0), timedelta.min])
def test_t30_and_refuse_what_is_none(value: Any) -> None:
    with pytest.raises(compat.InvalidTask, match=r"Invalid timeout .*: use seconds"):
        task(timeout=value)(two)
