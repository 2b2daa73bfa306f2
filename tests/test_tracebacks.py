from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from djqueue.jobs import tracebacks
from djqueue.jobs.tracebacks import format_error


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def divide(times: int = 0) -> float:
    return divide(times - 1) if times else 1 / 0


def with_a_cause() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("two\nlines") from error


def with_a_context_and_a_note() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        error.add_note("a note\nof two lines")
        raise ValueError  # noqa: B904  the context is the point


def without_its_context() -> None:
    try:
        {}["missing"]
    except KeyError:
        raise ValueError("alone") from None


def with_itself_as_cause() -> None:
    error = ValueError("round")
    error.__cause__ = error
    raise error


def with_a_cause_and_another_context() -> None:
    error, error.__cause__, error.__context__ = ValueError("top"), caught(with_a_cause), caught(without_its_context)
    raise error


def a_group() -> None:
    inner = ExceptionGroup("inner", [caught(with_a_context_and_a_note), caught(without_its_context)])  # type: ignore[list-item]
    raise ExceptionGroup("outer", [caught(with_a_cause), inner])  # type: ignore[list-item]


def over_several_lines() -> float:
    return (
        1
        + 2 /
        0
    )  # fmt: skip


RAISERS: list[Callable[[], object]] = [
    divide,
    *((lambda times=times: divide(times)) for times in (2, 3, 4, 500)),  # type: ignore[misc]
    lambda: divide(100_000),  # a RecursionError
    with_a_cause,
    with_a_context_and_a_note,
    without_its_context,
    with_itself_as_cause,
    with_a_cause_and_another_context,
    a_group,
    over_several_lines,
    lambda: compile("no code\n", "somewhere.py", "exec"),
    lambda: exec(compile("x = 1\nx / 0", "<string>", "exec")),  # noqa: S102  code without a file
    lambda: divid(1),  # type: ignore[name-defined]  # noqa: F821  a hint at the name that is meant
    lambda: "".strp(),  # type: ignore[attr-defined]
]


@pytest.mark.parametrize("raiser", RAISERS)
def test_the_text_is_that_of_python_the_first_time_and_every_time(raiser: Callable[[], object]) -> None:
    error = caught(raiser)
    expected = "".join(traceback.format_exception(error))

    assert format_error(error) == expected
    assert format_error(error) == expected


def test_an_exception_that_was_never_raised_has_a_text() -> None:
    assert format_error(ValueError("never raised")) == "ValueError: never raised\n"


def test_equal_code_in_two_files_is_not_mistaken_for_one_another() -> None:
    codes = [compile("1 / 0", f"{letter}.py", "exec") for letter in "ab"]

    texts = [format_error(caught(lambda code=code: exec(code))) for code in codes]  # type: ignore[misc]  # noqa: S102

    assert codes[0] == codes[1]
    assert 'File "a.py", line 1' in texts[0]
    assert 'File "b.py", line 1' in texts[1]


def test_code_that_is_made_anew_each_time_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "_KEPT_PLACES", 10)

    for number in range(100):
        format_error(caught(lambda number=number: exec(compile("1 / 0", f"{number}.py", "exec"))))  # type: ignore[misc]  # noqa: S102

    assert len(tracebacks._places) <= 10
