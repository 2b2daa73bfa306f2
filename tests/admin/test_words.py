from __future__ import annotations

from datetime import timedelta

import pytest

from djqueue.admin.words import duration, parse_time, pretty


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


def test_json_is_written_as_people_read_it() -> None:
    assert pretty({"ü": [1, None]}) == '{\n  "ü": [\n    1,\n    null\n  ]\n}'
