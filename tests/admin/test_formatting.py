from __future__ import annotations

from datetime import timedelta

import pytest

from djqueue.admin.formatting import duration, parse_time, pretty, task_name


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 ms"),
        (0, "0 ms"),
        (0.34, "340 ms"),
        (0.9996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (75, "1 min 15 s"),
        (659, "10 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_400, "1 day"),
        (86_400 * 3 + 7200, "3 days 2 h"),
        (86_400 * 40, "40 days"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


def test_a_time_in_json_may_be_anything() -> None:
    assert parse_time("2026-01-01T00:00:00") == parse_time("2026-01-01T00:00:00+00:00")
    assert parse_time("yesterday") is parse_time(5) is parse_time(None) is None


def test_short_json_is_one_line_and_long_json_is_indented() -> None:
    assert pretty({"ü": [1, None]}) == '{"ü": [1, null]}'
    assert pretty(["x" * 60]) == f'[\n  "{"x" * 60}"\n]'


def test_a_task_shows_its_function_before_its_module() -> None:
    assert task_name("shop.tasks.send_<b>") == (
        '<span class="djq-task">send_&lt;b&gt;</span> <span class="djq-module">shop.<wbr>tasks</span>'
    )
