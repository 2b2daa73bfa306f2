from __future__ import annotations

from datetime import timedelta

import pytest

from djqueue import conf
from djqueue.exceptions import InvalidOptions
from djqueue.jobs.durations import parse_duration
from djqueue.jobs.records import PruneRule
from djqueue.jobs.retention import Keep
from djqueue.jobs.states import JobState


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (timedelta(hours=2), 7200),
        (90, 90),
        (0.5, 0.5),
        (0, 0),
        ("1 day", 86_400),
        ("30 Days", 2_592_000),
        ("1 day 12 hours", 129_600),
        ("1 day, 12 hours and 30 minutes", 131_400),
        ("90s", 90),
        ("1.5h", 5400),
        ("2 weeks", 1_209_600),
        ("1 year", 31_557_600),
        ("PT90M", 5400),
        ("P1DT12H", 129_600),
        ("P2W", 1_209_600),
        ("pt0.5s", 0.5),
        ("01:30:00", 5400),
        ("0", 0),
        ("0 seconds", 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(value: object, seconds: float) -> None:
    assert parse_duration(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    ["", "day", "1", "1 fortnight", "-1 day", "1 day ago", "1e99 days", "999999999 years", -1, float("nan"),
     float("inf"), 1e300, True, [], timedelta(days=-1), timedelta.max, "1 day 12",
     "2", "2.5", "P", "PT", "P1DT", "PT1D", "1:2", "00:60:00", "٢ days", "\0", "9" * 101 + "s"],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_a_sentence(value: object) -> None:
    with pytest.raises(ValueError, match="Invalid duration"):
        parse_duration(value)


def test_a_state_that_is_not_named_keeps_its_default() -> None:
    options = conf.parse({"retention": {"completed": None}}, conf.Options)

    assert options.prune_rules() == [
        PruneRule(JobState.COMPLETED),
        PruneRule(JobState.DISCARDED, timedelta(days=30)),
        PruneRule(JobState.CANCELLED, timedelta(days=7)),
    ]


def test_one_value_is_for_all_states() -> None:
    assert set(conf.parse({"retention": "3 days"}, conf.Options).retention.values()) == {Keep(timedelta(days=3))}


def test_none_keeps_all_for_ever() -> None:
    assert set(conf.parse({"retention": None}, conf.Options).retention.values()) == {Keep()}


def test_queues_and_tasks_say_what_differs() -> None:
    options = conf.parse(
        {
            "queues": {"mail": {"concurrency": 3, "retention": {"completed": {"age": "1 hour", "count": 100}}}},
            "tasks": {"shop.tasks.pay": {"retention": {"completed": None}}},
        },
        conf.Options,
    )

    assert options.prune_rules()[3:] == [
        PruneRule(JobState.COMPLETED, timedelta(hours=1), 100, queue="mail"),
        PruneRule(JobState.COMPLETED, task="shop.tasks.pay"),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retention": {"complete": "1 day"}}, "Invalid state 'complete' in 'retention'"),
        ({"retention": {"executing": "1 day"}}, "Invalid state 'executing' in 'retention'"),
        ({"retention": {"completed": "soon"}}, "Invalid duration 'soon'"),
        ({"retention": {"completed": {"cont": 3}}}, "Invalid keys 'cont'"),
        ({"retention": {"completed": {"count": -1}}}, "Invalid 'count'"),
        ({"retention": {"completed": {"count": True}}}, "Invalid 'count'"),
        ({"queues": {"mail": {"retention": {"completed": []}}}}, "'retention' of queue 'mail'"),
        ({"tasks": {"pay": {}}}, "Invalid task path 'pay'"),
        ({"tasks": {"shop.pay": {"queue": 3}}}, "a dict with the key 'retention'"),
        ({"tasks": []}, "Invalid 'tasks'"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidOptions, match=words):
        conf.parse(options, conf.Options)
