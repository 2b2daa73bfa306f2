"""``@task(cron=…)``."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.test import override_settings

from djqueue import Cron, InvalidCron, compat, task
from djqueue.cron import CronDefinition
from djqueue.tasks.task import KNOWN
from tests.cron.test_schedule import HOSTILE
from tests.crontab import tasks


def target(a: int = 1, *, b: int = 2) -> None:
    pass


def needs_two(context: Any, a: int, b: int) -> None:
    pass


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Tasks that a test makes are known in that test only."""
    with mock.patch.dict(KNOWN):
        yield


def make(function: Any = target, takes_context: bool = False, **options: Any) -> Any:
    return task(takes_context=takes_context, **options)(function)


PATH = f"{target.__module__}.target"


def test_an_expression_alone_is_an_entry_of_the_tasks_name() -> None:
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        made = make(cron="0 6 * * mon")

        assert made.cron_definitions == {
            PATH: CronDefinition(task=PATH, expression="0 6 * * mon", timezone="Asia/Tokyo")
        }


def test_every_word_of_an_entry_is_kept() -> None:
    start, end = datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
    made = make(
        cron=[
            Cron(
                "@daily",
                args=[7],
                kwargs={"b": [1]},
                name="daily",
                timezone="UTC",
                queue_name="reports",
                priority=-1,
                misfire="all",
                misfire_window=timedelta(hours=2),
                overlap="skip",
                jitter=timedelta(seconds=30),
                start=start,
                end=end,
                max_runs=9,
            ),
            "@hourly",
        ],
        timezone="Europe/Berlin",
    )

    assert made.cron_definitions == {
        "daily": CronDefinition(
            task=PATH,
            expression="@daily",
            timezone="UTC",
            args=[7],
            kwargs={"b": [1]},
            queue="reports",
            priority=-1,
            misfire="all",
            misfire_window_seconds=7200,
            overlap="skip",
            jitter_seconds=30,
            start_at=start,
            end_at=end,
            max_runs=9,
        ),
        f"{PATH}:2": CronDefinition(task=PATH, expression="@hourly", timezone="Europe/Berlin"),
    }
    definition = made.cron_definitions["daily"]
    assert CronDefinition.from_json(definition.as_json()) == CronDefinition(
        **{**vars(definition), "args": tuple(definition.args)}
    )


def test_a_task_with_entries_is_hashed_pickled_and_copied_like_any_other() -> None:
    assert hash(tasks.report) != hash(tasks.every_second)
    assert pickle.loads(pickle.dumps(tasks.report)) == tasks.report  # noqa: S301  our own bytes
    assert tasks.report.using(priority=3).cron == tasks.report.cron
    assert tasks.report.func("x") == "x"


@pytest.mark.parametrize("name", ["misfire_window", "jitter"])
@pytest.mark.parametrize(
    ("value", "seconds"),
    [(90, 90), (1.5, 1), ("90s", 90), ("2 hours", 7200), ("PT90M", 5400), (timedelta(hours=1), 3600)],
)
def test_windows_and_jitters_are_any_duration(name: str, value: Any, seconds: int) -> None:
    entry = Cron("@daily", **{name: value})

    assert isinstance(getattr(entry, name), timedelta)
    [definition] = make(cron=entry).cron_definitions.values()
    assert getattr(definition, f"{name}_seconds") == seconds


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"jitter": timedelta(days=2)}, "Invalid jitter .* in Cron: .* at most 1 day"),
        ({"jitter": -1}, "Invalid jitter -1 in Cron"),
        ({"jitter": None}, "Invalid jitter None in Cron"),
        ({"misfire_window": "5"}, "Invalid misfire_window '5' in Cron: .* from 1 second to 366 days"),
        ({"misfire_window": 0.5}, "Invalid misfire_window 0.5 in Cron"),
        ({"misfire_window": "2 years"}, "Invalid misfire_window '2 years' in Cron"),
    ],
)
def test_a_wrong_duration_is_refused_where_it_is_written(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidCron, match=sentence):
        Cron("@daily", **options)


@pytest.mark.parametrize("expression", [text for text in HOSTILE if isinstance(text, str)])
def test_hostile_and_impossible_expressions_are_refused(expression: str) -> None:
    with pytest.raises(compat.InvalidTask, match="cron entry"):
        make(cron=expression)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cron": 5}, "Invalid cron .*: use an expression"),
        ({"cron": ["@daily", None]}, "Invalid cron .*: use an expression"),
        ({"cron": "@daily", "timezone": "Nope"}, "Invalid time zone 'Nope'"),
        ({"cron": "@daily", "timezone": 5}, "Invalid timezone 5: use the name"),
        ({"cron": Cron("@daily", args=[1, 2])}, "cannot be called with these arguments"),
        ({"cron": Cron("@daily", kwargs={"c": 1})}, "cannot be called with these arguments"),
        ({"cron": Cron("@daily", args=[object()])}, "is an object"),
        ({"cron": Cron("@daily", args=["x" * 100_000])}, "as JSON"),
        ({"cron": Cron("@daily", args="ab")}, "use a list for args"),
        ({"cron": Cron("@daily", kwargs=[1])}, "use a list for args and a dict for kwargs"),
        ({"cron": Cron("@daily", misfire="never")}, "Invalid misfire"),  # type: ignore[arg-type]
        ({"cron": Cron("@daily", overlap="cancel")}, "Invalid overlap"),  # type: ignore[arg-type]
        ({"cron": Cron("@daily", max_runs=0)}, "max_runs"),
        ({"cron": Cron("@daily", max_runs=True)}, "max_runs"),
        ({"cron": Cron("@daily", priority=101)}, "priority"),
        ({"cron": Cron("@daily", queue_name="no queue")}, "Invalid queue name"),
        ({"cron": Cron("@daily", start=datetime(2030, 1, 1))}, "time with a time zone"),
        ({"cron": Cron("@daily", end=datetime(1999, 1, 1, tzinfo=UTC))}, "never comes true before the end"),
        ({"cron": Cron("@daily", start="2030-01-01")}, "time with a time zone"),  # type: ignore[arg-type]
        ({"cron": Cron("@daily", name="x" * 201)}, "Invalid name of a cron entry"),
        ({"cron": Cron("@daily", name="a\nb")}, "Invalid name of a cron entry"),
        ({"cron": [Cron("@daily", name="a"), Cron("@hourly", name="a")]}, "have the name 'a'"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(options: dict[str, Any], words: str | None) -> None:
    if words is None:
        make(**options)
        return
    with pytest.raises(compat.InvalidTask, match=words):
        make(**options)


def test_the_context_is_no_argument_of_an_entry() -> None:
    make(needs_two, takes_context=True, cron=Cron("@daily", args=[1, 2]))
    with pytest.raises(compat.InvalidTask, match="missing a required argument: 'b'"):
        make(needs_two, takes_context=True, cron=Cron("@daily", args=[1]))


def test_using_takes_no_cron() -> None:
    for options in ({"cron": "@daily"}, {"timezone": "UTC"}):
        with pytest.raises(TypeError, match=r"using\(\) does not know (cron|timezone)"):
            tasks.plain.using(**options)
