from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from djqueue.tasks.backoff import DAY, LIMIT, Exponential, Linear, delay_seconds, problem_of

attempts = st.integers(min_value=-5, max_value=10**9)
waits = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.integers(), st.timedeltas(), st.none(), st.text())
ERROR = ValueError("no")


@given(backoff=st.one_of(waits, st.lists(waits), st.functions(like=lambda a, e: 0, returns=waits)), attempt=attempts)
def test_any_backoff_gives_seconds_from_0_to_a_year(backoff: Any, attempt: int) -> None:
    seconds = delay_seconds(backoff, attempt, ERROR)

    assert type(seconds) is float
    assert 0 <= seconds <= LIMIT


@given(backoff=st.one_of(waits, st.lists(waits)))
def test_a_backoff_without_a_problem_is_used_as_it_is(backoff: Any) -> None:
    if backoff is not None and not problem_of(backoff):
        first = backoff[0] if isinstance(backoff, list) else backoff

        expected = first.total_seconds() if isinstance(first, timedelta) else first

        assert delay_seconds(backoff, 1, ERROR) == expected


@given(attempt=st.integers(min_value=1, max_value=16))
def test_the_default_is_fifteen_seconds_and_a_power_of_two(attempt: int) -> None:
    full = 15 + 2**attempt

    assert 0.9 * full <= delay_seconds(None, attempt, ERROR) <= full


@pytest.mark.parametrize("attempt", [17, 1023, 1025, 10**6, 10**12])
def test_the_default_never_waits_longer_than_a_day(attempt: int) -> None:
    assert 0.9 * DAY <= delay_seconds(None, attempt, ERROR) <= DAY


def test_jitter_takes_jobs_that_failed_together_apart() -> None:
    assert len({delay_seconds(None, 10**6, ERROR) for _ in range(20)}) > 10


def test_a_number_and_a_timedelta_are_fixed_waits() -> None:
    assert [delay_seconds(30, attempt, ERROR) for attempt in (1, 2, 50)] == [30, 30, 30]
    assert delay_seconds(timedelta(minutes=1), 3, ERROR) == 60
    assert delay_seconds(0, 1, ERROR) == 0


def test_the_last_wait_of_a_list_repeats() -> None:
    waits = [delay_seconds([5, timedelta(minutes=1), 3600], attempt, ERROR) for attempt in (1, 2, 3, 4, 100)]

    assert waits == [5, 60, 3600, 3600, 3600]


def test_linear_grows_by_its_step_up_to_its_maximum() -> None:
    backoff = Linear(10, jitter=0, maximum=35)

    assert [delay_seconds(backoff, attempt, ERROR) for attempt in (1, 2, 3, 4)] == [10, 20, 30, 35]


def test_exponential_takes_base_factor_and_maximum() -> None:
    backoff = Exponential(base=1, factor=3, jitter=0, maximum=100)

    assert [delay_seconds(backoff, attempt, ERROR) for attempt in (1, 2, 3, 4, 5)] == [4, 10, 28, 82, 100]


def test_a_function_sees_the_attempt_and_the_exception() -> None:
    seen: list[Any] = []

    seconds = delay_seconds(lambda *what: seen.append(what) or 7, 3, ERROR)

    assert seconds == 7
    assert seen == [(3, ERROR)]


def test_a_function_may_answer_with_any_other_wait() -> None:
    assert delay_seconds(lambda a, e: timedelta(seconds=8), 1, ERROR) == 8
    assert 15 < delay_seconds(lambda a, e: None, 1, ERROR) <= 17


@pytest.mark.parametrize("nonsense", ["soon", math.nan, object(), [], True])
def test_a_function_that_answers_nonsense_gets_the_default_and_a_log_line(
    nonsense: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert 15 < delay_seconds(lambda a, e: nonsense, 1, ERROR) <= 17
    assert "Falling back to the default" in caplog.text


def test_a_function_that_raises_gets_the_default_and_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def broken(attempt: int, error: BaseException | None) -> float:
        raise KeyError("oops")

    assert 15 < delay_seconds(broken, 1, ERROR) <= 17
    assert "KeyError" in caplog.text


@pytest.mark.parametrize(
    "backoff", [-1, math.nan, math.inf, "30", True, [], [1, -1], [[1]], LIMIT + 1, timedelta(days=366), {}, object()]
)
def test_a_wrong_backoff_is_told_in_a_sentence(backoff: object) -> None:
    assert problem_of(backoff).endswith(".")


@pytest.mark.parametrize("wrong", [{"jitter": 2}, {"maximum": -1}, {"base": "x"}, {"factor": 0.5}])
def test_wrong_numbers_of_a_growing_backoff_raise(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Exponential(**wrong)
