"""Options of ``runworker``."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from djqueue.management.commands.runworker import Command


@pytest.mark.parametrize(
    ("option", "number", "most"),
    [
        ("--processes", "0", 1000),
        ("--processes", "1001", 1000),
        ("--processes", "100000", 1000),
        ("--concurrency", "10001", 10_000),
        ("--concurrency", "many", 10_000),
        ("--max-jobs", "-1", 10_000_000),
        ("--max-rss", "nan", 10_000_000),
    ],
)
def test_a_number_out_of_range_is_refused_with_both_bounds(option: str, number: str, most: int) -> None:
    with pytest.raises(
        CommandError, match=rf"{option}: Invalid number '{number}': use a whole number from 1 to {most}"
    ):
        call_command("runworker", f"{option}={number}")


@pytest.mark.django_db
@pytest.mark.parametrize("queues", ["", ",", " , "])
def test_a_list_of_queues_without_a_name_does_not_mean_all_queues(queues: str) -> None:
    with pytest.raises(CommandError, match=f"Invalid --queues '{queues}': name at least one queue"):
        call_command("runworker", f"--queues={queues}")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("2 days", 172_800), ("PT90M", 5400), ("01:30:00", 5400)],
)
def test_an_age_is_any_duration_and_a_bare_number_of_seconds(text: str, seconds: float) -> None:
    options = Command().create_parser("manage.py", "runworker").parse_args(["--max-age", text])

    assert options.max_age == seconds


@pytest.mark.parametrize("text", ["0", "0s", "-1", "nan", "soon", "200 years"])
def test_an_age_that_is_not_a_positive_duration_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--max-age: Invalid duration"):
        call_command("runworker", f"--max-age={text}")
