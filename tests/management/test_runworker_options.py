"""Numbers at the command line of ``runworker``."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command


@pytest.mark.parametrize(
    ("option", "number", "most"),
    [
        ("--processes", "0", 1000),
        ("--processes", "1001", 1000),
        ("--processes", "100000", 1000),
        ("--concurrency", "10001", 10_000),
        ("--concurrency", "many", 10_000),
        ("--max-jobs", "-1", 10_000_000),
        ("--max-age", "nan", 10_000_000),
    ],
)
def test_a_number_out_of_range_is_refused_with_both_bounds(option: str, number: str, most: int) -> None:
    with pytest.raises(
        CommandError, match=rf"{option}: Invalid number '{number}': use a whole number from 1 to {most}"
    ):
        call_command("runworker", f"{option}={number}")
