from __future__ import annotations

import pytest

from bench.harness.figures import Figure, number, percentile


def test_a_figure_is_the_median_with_its_range() -> None:
    figure = Figure.of([5.0, 1.0, 9.0, 2.0])

    assert (figure.median, figure.low, figure.high, figure.runs) == (3.5, 1.0, 9.0, 4)
    assert str(figure) == "3.50 (1.00–9.00)"


def test_a_single_value_has_no_range() -> None:
    assert str(Figure.of([12_345.6])) == "12,346"


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.01, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    values = [float(value) for value in range(100, 0, -1)]

    assert percentile(values, share) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (0.5, "0.500"),
        (1.234, "1.23"),
        (99.94, "99.9"),
        (1234.5, "1,234"),
        (-2.0, "-2.00"),
    ],
)
def test_numbers_are_written_with_three_digits(value: float, expected: str) -> None:
    assert number(value) == expected
