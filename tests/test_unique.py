"""Unique jobs as a user writes them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from djqueue import DuplicateJob, InvalidArguments, InvalidJob, Unique, compat, task
from djqueue.jobs.states import JobState
from djqueue.models import FinishedJob, Job
from djqueue.tasks.unique import key_of
from tests.app import tasks
from tests.defaults import ack, fetch
from tests.test_backends import Status, receiving

MINUTE = timedelta(minutes=1)


def send(user_id: int, text: str = "hello", *more: Any, urgent: bool = False, **options: Any) -> None: ...


def in_context(context: Any, user_id: int) -> None: ...


def strange(a: int, marker: Any = object(), b: int = 2) -> None: ...  # noqa: B008  a default that JSON cannot hold


def whole(order: dict[str, Any]) -> None: ...


def number_of(order: dict[str, Any]) -> Any:
    return order["number"]


def broken(*args: Any) -> str:
    raise LookupError("nothing here")


def key(*args: Any, rule: Unique = Unique(), of: Any = send, **kwargs: Any) -> str:  # noqa: B008  frozen
    return key_of(rule, f"tests.{of.__name__}", of, args, kwargs, takes_context=of is in_context)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class TestKey:
    @given(st.dictionaries(st.from_regex(r"\Ak[a-z]{1,8}\Z"), json_values, max_size=5), json_values, st.randoms())
    def test_the_order_of_keywords_never_matters_at_any_depth(self, options, value, random):
        options.pop("user_id", None)

        def shuffled(value: Any) -> Any:
            if isinstance(value, dict):
                items = list(value.items())
                random.shuffle(items)
                return {name: shuffled(item) for name, item in items}
            return [shuffled(item) for item in value] if isinstance(value, list) else value

        assert key(value, **options) == key(shuffled(value), **shuffled(options))

    @given(json_values, json_values)
    def test_two_keys_are_equal_exactly_when_the_arguments_are_as_json(self, one, other):
        same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)

        assert (key(one) == key(other)) == same

    @given(json_values)
    def test_a_key_is_the_same_after_the_trip_through_the_store(self, value):
        assert key(value) == key(json.loads(json.dumps(value)))

    def test_a_call_by_keyword_is_the_call_by_position(self):
        assert key(1, "hello") == key(user_id=1, text="hello") == key(1, text="hello")

    def test_a_default_left_out_is_the_default(self):
        assert key(1) == key(1, "hello") == key(1, urgent=False)
        assert key(1) != key(1, "bye")
        assert key(1, of=strange) == key(1, b=2, of=strange) != key(1, None, of=strange)

    def test_surplus_arguments_count_and_cannot_be_mistaken_for_others(self):
        keys = [key(1, "a"), key(1, "a", "b"), key(1, "a", b="b"), key(1, "a", "b", "c"), key(1, "a", ["b", "c"])]

        assert len(set(keys)) == 5

    def test_the_context_is_no_argument(self):
        assert key(1, of=in_context) == key(user_id=1, of=in_context)

    def test_arguments_that_the_function_does_not_take_have_a_key_too(self):
        assert key(of=whole) == key(of=whole) != key(1, 2, of=whole)

    def test_chosen_arguments_by_name_and_by_position(self):
        for rule in (Unique(args=["user_id"]), Unique(args=[0]), Unique(args=("user_id", "colour"))):
            assert key(1, "a", rule=rule) == key(1, "b", urgent=True, rule=rule) != key(2, "a", rule=rule)
        assert key(1, colour="red", rule=Unique(args=["colour"])) == key(2, colour="red", rule=Unique(args=["colour"]))
        assert key(1, "a", "x", rule=Unique(args=[2])) == key(2, "b", "x", "y", rule=Unique(args=[2]))
        assert key(1, rule=Unique(args=[1])) == key(2, text="hello", rule=Unique(args=[1]))

    def test_paths_reach_into_arguments(self):
        rule = Unique(keys=["order.number", "order.lines.0.sku"])
        one = {"number": 7, "lines": [{"sku": "a", "count": 1}], "note": "x"}

        assert key(one, of=whole, rule=rule) == key({**one, "note": "y"}, of=whole, rule=rule)
        assert key(one, of=whole, rule=rule) != key({**one, "number": 8}, of=whole, rule=rule)
        assert key({}, of=whole, rule=rule) == key({"lines": []}, of=whole, rule=rule)

    def test_a_function_of_the_arguments_can_say_the_key(self):
        rule = Unique(keys=number_of)

        assert key({"number": 1, "x": 1}, of=whole, rule=rule) == key({"number": 1}, of=whole, rule=rule)

    def test_a_key_function_that_fails_is_told_with_the_tasks_name(self):
        with pytest.raises(InvalidJob, match=r"The keys function of tests\.whole failed: LookupError: nothing here"):
            key({}, of=whole, rule=Unique(keys=broken))

    def test_a_key_function_must_return_what_json_can_hold(self):
        with pytest.raises(InvalidArguments, match=r"The unique key of tests\.whole cannot be made of"):
            key({}, of=whole, rule=Unique(keys=lambda order: object()))

    def test_named_arguments_of_a_call_that_does_not_fit_are_refused(self):
        with pytest.raises(InvalidArguments, match=r"tests\.whole does not take these arguments"):
            key(1, 2, of=whole, rule=Unique(args=["order"]))

    def test_a_key_of_ones_own_is_one_per_task(self):
        rule = Unique(key="order-7")

        assert key(1, rule=rule) == key(2, rule=rule) != key(1, rule=Unique(key="order-8"))
        assert key(1, rule=rule) != key({}, of=whole, rule=rule)

    def test_it_is_the_same_in_another_process_and_fits_the_column_with_its_suffix(self):
        code = (
            "import django; django.setup(); from tests.test_unique import key; print(key(1, 'ä', b={'y': 1, 'x': 2}))"
        )
        there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

        here = key(1, "ä", b={"x": 2, "y": 1})
        assert there.stdout.strip() == here, there.stderr
        assert len(here) == 40
        assert here == "249c4438b797bdb2db3e15f8374b9b6e2ae113d2"  # stored keys must survive an upgrade


class TestValidation:
    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"scope": "dead"}, "Invalid scope 'dead' in Unique: use one of 'live', 'live\\+completed'"),
            ({"on_conflict": "ignore"}, "Invalid on_conflict"),
            ({"on_running": "wait"}, "Invalid on_running"),
            ({"period": "5"}, "Invalid period '5' in Unique: use seconds, a timedelta or a text like"),
            ({"period": True}, "Invalid period True in Unique"),
            ({"throttle": 0}, "Invalid throttle 0 in Unique"),
            ({"period": timedelta(0)}, "more than 0"),
            ({"throttle": timedelta(days=99_999)}, "at most 100 years"),
            ({"debounce": -MINUTE}, "Invalid debounce"),
            ({"key": ""}, "Invalid key '' in Unique: use a string that is not empty"),
            ({"key": 7}, "Invalid key 7"),
            ({"args": []}, "in Unique: use a list of names or positions"),
            ({"args": "user_id"}, "in Unique: use a list of names or positions"),
            ({"args": [-1]}, "in Unique: use a list of names or positions"),
            ({"args": [True]}, "in Unique: use a list of names or positions"),
            ({"keys": "order.id"}, "Invalid keys .* in Unique: use a function of the arguments, or a list of paths"),
            ({"keys": ["order..id"]}, "Invalid keys"),
            ({"args": ["a"], "keys": ["b"]}, "args and keys exclude each other"),
            ({"key": "a", "args": ["b"]}, "key and args exclude each other"),
            ({"debounce": MINUTE, "on_conflict": "replace"}, "debounce says by itself"),
            ({"debounce": MINUTE, "throttle": MINUTE}, "debounce says by itself"),
            ({"debounce": MINUTE, "scope": "live+completed"}, "debounce says by itself"),
            ({"period": MINUTE, "throttle": MINUTE}, "mean the same"),
            ({"throttle": MINUTE, "scope": "live+completed"}, "throttle counts every job"),
            ({"on_running": "follow_up", "period": MINUTE}, "there must be none"),
            ({"on_running": "follow_up", "on_conflict": "raise"}, "there must be none"),
        ],
    )
    def test_a_rule_that_cannot_work_is_told_where_it_is_written(self, options, sentence):
        with pytest.raises(compat.InvalidTask, match=sentence):
            Unique(**options)

    @pytest.mark.parametrize("name", ["period", "debounce", "throttle"])
    @pytest.mark.parametrize("value", [60, 60.0, "60s", "1 minute", "PT1M", "00:01:00", MINUTE])
    def test_its_durations_may_be_written_in_every_way(self, name, value):
        rule = Unique(**{name: value})

        assert rule == Unique(**{name: MINUTE})
        assert getattr(rule, name) == MINUTE

    @pytest.mark.parametrize("value", [1, "", ["user_id"], {"args": ["user_id"]}, timedelta(1)])
    def test_unique_takes_true_a_key_or_a_rule(self, value):
        with pytest.raises(compat.InvalidTask, match=r"Invalid unique .*: use True, a key of your own or a Unique"):
            task(unique=value)(send)

    @pytest.mark.parametrize("rule", [Unique(args=["usr"]), Unique(args=[1]), Unique(keys=["usr.id"])])
    def test_an_argument_that_the_function_does_not_have_is_refused(self, rule):
        with pytest.raises(compat.InvalidTask, match=r"which whole\(\) does not have\. It has: order\."):
            task(unique=rule)(whole)

    def test_the_context_cannot_be_chosen(self):
        with pytest.raises(compat.InvalidTask, match="It has: user_id"):
            task(takes_context=True, unique=Unique(args=["context"]))(in_context)

    def test_debounce_and_run_after_exclude_each_other(self):
        with pytest.raises(compat.InvalidTask, match="debounce and run_after cannot be combined"):
            task(unique=Unique(debounce=MINUTE))(send).using(run_after=MINUTE)

    def test_a_task_with_a_rule_can_be_hashed_compared_and_pickled(self):
        one = tasks.add.using(unique=Unique(args=["a"], period=MINUTE))

        assert hash(one) == hash(tasks.add.using(unique=Unique(args=("a",), period=MINUTE)))
        assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301  our own

    def test_true_false_and_a_key_become_rules(self):
        unique = task(unique=True)(send)

        assert unique.unique == Unique()
        assert unique.using(priority=1).unique == Unique()
        assert unique.using(unique=False).unique is None
        assert unique.using(unique="k").unique == Unique(key="k")
        assert task(unique=False)(send).unique is task(send).unique is None

    def test_a_key_given_to_using_keeps_the_tasks_rule(self):
        made = task(unique=Unique(args=["user_id"], period=MINUTE, on_conflict="raise"))(send)

        assert made.using(unique="k").unique == Unique(key="k", period=MINUTE, on_conflict="raise")

    def test_a_backend_of_somebody_else_ignores_it(self, settings):
        settings.TASKS = {"default": {"BACKEND": f"{compat.FRAMEWORK}.backends.dummy.DummyBackend", "QUEUES": []}}
        unique = tasks.add.using(unique=True)

        assert unique.enqueue(1).id != unique.enqueue(1).id


@pytest.mark.django_db(transaction=True)
class TestEnqueue:
    def test_a_duplicate_returns_the_existing_jobs_result_and_says_so(self):
        first = tasks.add.using(unique=True).enqueue(1, b=2)
        twin = tasks.add.using(unique=True).enqueue(b=2, a=1)

        assert (first.was_duplicate, twin.was_duplicate) == (False, True)
        assert (twin.id, twin.args, twin.kwargs, twin.status) == (first.id, [1], {"b": 2}, Status.READY)
        assert twin == tasks.add.get_result(first.id)
        assert Job.objects.count() == 1

    def test_the_queue_does_not_make_another_job_and_the_task_does(self):
        first = tasks.add.using(unique="k").enqueue(1)

        assert tasks.add.using(unique="k", queue_name="mail").enqueue(1).id == first.id
        assert not tasks.noop.using(unique="k").enqueue(1).was_duplicate

    def test_a_running_job_answers_as_running(self):
        tasks.add.using(unique=True).enqueue(1)
        fetch()

        twin = tasks.add.using(unique=True).enqueue(1)

        assert (twin.status, twin.was_duplicate, twin.job.attempt) == (Status.RUNNING, True, 1)

    def test_once_it_has_ended_the_next_is_new(self):
        first = tasks.add.using(unique=True).enqueue(1)
        ack(fetch(), JobState.COMPLETED, result="1")

        assert not tasks.add.using(unique=True).enqueue(1).was_duplicate
        first.refresh()
        assert first.return_value == 1

    def test_a_completed_holder_answers_with_its_return_value(self):
        once = tasks.add.using(unique=Unique(scope="live+completed"))
        once.enqueue(1)
        ack(fetch(), JobState.COMPLETED, result="1")

        twin = once.enqueue(1)

        assert (twin.was_duplicate, twin.status, twin.return_value) == (True, Status.SUCCESSFUL, 1)

    def test_a_holder_that_is_kept_no_longer_answers_with_what_is_known(self):
        throttled = tasks.add.using(unique=Unique(throttle=MINUTE))
        first = throttled.enqueue(1)
        ack(fetch(), JobState.COMPLETED, result="1")
        FinishedJob.objects.all().delete()

        twin = throttled.enqueue(1)

        assert (twin.id, twin.was_duplicate, twin.status) == (first.id, True, Status.SUCCESSFUL)

    def test_raise_names_the_holder_and_stores_nothing(self):
        strict = tasks.add.using(unique=Unique(on_conflict="raise"))
        first = strict.enqueue(1)

        with pytest.raises(
            DuplicateJob, match=rf"Job {first.id} \(available\) of tests\.app\.tasks\.add holds"
        ) as caught:
            strict.enqueue(1)

        assert caught.value.job_id == first.id
        assert pickle.loads(pickle.dumps(caught.value)).job_id == first.id  # noqa: S301  our own
        assert Job.objects.count() == 1

    def test_replace_shows_the_new_arguments(self):
        replaced = tasks.add.using(unique=Unique(args=["a"], on_conflict="replace"))
        first = replaced.enqueue(1, 2)

        twin = replaced.using(priority=7, max_attempts=2).enqueue(1, 3)

        assert (twin.id, twin.was_duplicate, twin.args) == (first.id, True, [1, 3])
        assert (twin.task.priority, twin.job.max_attempts) == (7, 2)

    def test_reschedule_moves_the_job_only(self):
        moved = tasks.add.using(unique=Unique(args=["a"], on_conflict="reschedule"))
        moved.enqueue(1, 2)

        twin = moved.using(run_after=MINUTE).enqueue(1, 3)

        assert (twin.args, twin.job.state) == ([1, 2], JobState.SCHEDULED)

    def test_debounce_waits_and_each_enqueue_pushes_back(self):
        debounced = tasks.add.using(unique=Unique(args=["a"], debounce=MINUTE))

        first = debounced.enqueue(1, 2)
        twin = debounced.enqueue(1, 3)

        assert first.job.state == JobState.SCHEDULED
        assert (twin.id, twin.args) == (first.id, [1, 3])
        job = Job.objects.get()
        assert job.scheduled_at > job.inserted_at + MINUTE

    def test_throttle_lets_the_first_through(self):
        throttled = tasks.add.using(unique=Unique(throttle=MINUTE))
        first = throttled.enqueue(1)
        ack(fetch(), JobState.DISCARDED)

        assert throttled.enqueue(1).id == first.id

    def test_follow_up_is_a_new_job_and_the_next_a_duplicate_of_it(self):
        following = tasks.add.using(unique=Unique(args=["a"], on_running="follow_up"))
        first = following.enqueue(1, 1)
        fetch()

        second, third = following.enqueue(1, 2), following.enqueue(1, 3)

        assert (second.was_duplicate, second.status, second.job.state) == (False, Status.READY, JobState.SUSPENDED)
        assert first.id != second.id == third.id
        assert (third.was_duplicate, third.args) == (True, [1, 3])

    def test_task_enqueued_is_sent_for_new_jobs_only(self):
        following = tasks.add.using(unique=Unique(args=["a"], on_running="follow_up"))
        with receiving(compat.task_enqueued) as seen:
            following.enqueue(1)
            following.enqueue(1)
            fetch()
            following.enqueue(1)
            following.enqueue(1)
            following.enqueue_many([((n,), {}) for n in (1, 2, 2)])

        assert [(each["task_result"].args, each["task_result"].job.state) for each in seen] == [
            ([1], "available"),
            ([1], "suspended"),
            ([2], "available"),
        ]


@pytest.mark.django_db
class TestEnqueueMany:
    def test_b98_a_thousand_with_a_held_key_twice_makes_998(self):
        held = tasks.add.using(unique=True).enqueue(-1)
        numbers = [*range(500), -1, *range(500, 998), -1]

        result = tasks.add.using(unique=True).enqueue_many(((n,), {}) for n in numbers)

        assert (result.count, len(result.ids), result.duplicates) == (998, 998, 2)
        assert result.duplicate_of == {500: held.id, 999: held.id}
        assert [tasks.add.get_result(result.ids[place]).args for place in (0, 500, 997)] == [[0], [500], [997]]

    def test_positions_count_across_chunks(self):
        result = tasks.add.using(unique=True).enqueue_many([((n % 7,), {}) for n in range(20)], batch_size=3)

        assert result.count == 7
        assert result.duplicate_of == {place: result.ids[place % 7] for place in range(7, 20)}

    def test_raise_names_the_item_and_stores_none(self):
        strict = tasks.add.using(unique=Unique(on_conflict="raise"))

        with pytest.raises(DuplicateJob, match="Item 3: Job"), transaction.atomic():
            strict.enqueue_many([((n % 3,), {}) for n in range(9)], batch_size=2)

        assert not Job.objects.exists()

    def test_a_key_function_that_fails_names_the_item(self):
        with pytest.raises(InvalidJob, match="Item 1: The keys function"):
            tasks.add.using(unique=Unique(keys=lambda a: 1 / a)).enqueue_many([((1,), {}), ((0,), {})])

    def test_a_task_without_a_rule_has_no_key(self):
        result = tasks.add.enqueue_many([((1,), {})] * 3)

        assert (result.count, result.duplicates, result.duplicate_of) == (3, 0, {})
        assert set(Job.objects.values_list("unique_key", flat=True)) == {None}


@pytest.mark.django_db(transaction=True)
def test_raise_in_a_bulk_in_autocommit_stores_none() -> None:
    strict = tasks.add.using(unique=Unique(on_conflict="raise"))

    with pytest.raises(DuplicateJob, match="Item 2"):
        strict.enqueue_many([((n % 2,), {}) for n in range(3)])

    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_async_enqueue_says_the_same() -> None:
    unique = tasks.add.using(unique=True)
    first = async_to_sync(unique.aenqueue)(1)

    twin = async_to_sync(unique.aenqueue)(1)

    assert (twin.id, twin.was_duplicate) == (first.id, True)
