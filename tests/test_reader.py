from __future__ import annotations

import io
import json
from typing import Any, cast

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from djqueue import InvalidArguments
from djqueue.bulk.reader import BadLine, Line, read
from djqueue.jobs.encoding import MAX_DEPTH, Encoded, encode_arguments
from tests.test_encoding import json_values

LIMIT = 5000
FITS: set[Any] = {("a",), ("a", "b"), 1, 2}


def read_one(text: str, fits: set[Any] = FITS) -> Encoded | Line | BadLine:
    [line] = read(io.StringIO(text), "jsonl", {}, fits, LIMIT)
    return line


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ('{"a": 1}\n', Encoded("[]", '{"a": 1}')),
        ('{"a":[1.5,{"c":null}],"b":"ü"}', Encoded("[]", '{"a":[1.5,{"c":null}],"b":"ü"}')),
        (r'["a\nb\\ \u00fc"]' + " \n", Encoded(r'["a\nb\\ \u00fc"]', "{}")),
        ("[1, -2.25]\n", Encoded("[1, -2.25]", "{}")),
        ('{"a": "' + "x" * 1000 + '"}\n', Encoded("[]", '{"a": "' + "x" * 1000 + '"}')),
    ],
)
def test_a_line_of_a_known_shape_is_passed_on_as_it_stands(text: str, encoded: Encoded) -> None:
    assert read_one(text) == encoded
    assert isinstance(read_one(text, set()), Line)


@pytest.mark.parametrize(
    "text",
    [
        '{"c": 1}',
        "[1, 2, 3]",
        "[NaN]",
        "[-Infinity]",
        "[1e400]",
        "[1e16]",
        f"[{'1' * 400}.5]",
        "[12345678901234567.5]",
        f"[0.{'1' * 20_000}]",
        "[1,\t2]",
        "\t[1]",
        "[1] [2]",
        '[1]"',
        r'["\u0000"]',
        r'["\ud800"]',
        r'["\uDFFF"]',
        '["\udcff"]',
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "[" + "1," * LIMIT + "1]",
        '["' + "ü" * (LIMIT // 2) + '"]',
        f"[{'1' * 5000}]",
        "[" * 100_000,
        "3",
        "nonsense",
        '{"a": 1} \xa0',
        '["\x01"]',
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_a_line_in_doubt_is_looked_at_more_closely(text: str) -> None:
    assert not isinstance(read_one(text), Encoded)


tokens = st.sampled_from(
    [
        *'{}[]:,"ab \t',
        *("1", "0", "-0.0", "1e5", "1E400", "1.5", ".5", "9" * 310, "NaN", "true", "null", '"a"', '"a": 1'),
        *(r"\u0000", r"\ud83d\ude00", r"\ud800", r"\n", "ü", "\udcff"),
    ]
)
texts = st.one_of(
    st.lists(tokens, max_size=12).map("".join),
    st.builds(
        json.dumps,
        st.lists(json_values, min_size=1, max_size=2) | st.dictionaries(st.sampled_from("ab"), json_values),
        ensure_ascii=st.booleans(),
        separators=st.sampled_from([(",", ":"), (", ", ": "), (" , ", "  :  ")]),
    ),
    st.builds("{}{}{}".format, st.just('{"a": '), st.lists(tokens, max_size=3).map("".join), st.just("}")),
)


@given(text=texts)
def test_what_is_passed_on_is_what_the_long_way_would_have_taken(text: str) -> None:
    found = read_one(text) if "\n" not in text and text.strip() else None
    if not isinstance(found, Encoded):
        return

    value = json.loads(text)
    args, kwargs = (value, {}) if isinstance(value, list) else ([], value)
    try:
        long = encode_arguments(args, kwargs, LIMIT)
    except InvalidArguments as error:
        pytest.fail(f"It would have been refused: {error}")

    assert (json.loads(found.args), json.loads(found.kwargs)) == (json.loads(long.args), json.loads(long.kwargs))


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(text=texts)
def test_the_database_takes_and_gives_back_what_is_passed_on(text: str) -> None:
    found = read_one(text) if "\n" not in text and text.strip() else None
    if not isinstance(found, Encoded):
        return

    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text, %s::jsonb::text", found)
        args, kwargs = cursor.fetchone()

    assert (json.loads(args), json.loads(kwargs)) == (json.loads(found.args), json.loads(found.kwargs))


def test_with_columns_to_map_nothing_is_passed_on() -> None:
    from djqueue.bulk.reader import Column

    [line] = read(io.StringIO('{"x": 1}'), "jsonl", {"x": Column("a")}, FITS, LIMIT)

    assert line == Line(1, [], {"a": 1}, '{"x": 1}')


class Endless(io.TextIOBase):
    """So many lines of so many characters; counts the most that anybody asked for at once."""

    def __init__(self, *pieces: tuple[str, int]) -> None:
        self._pieces = list(pieces)
        self.most = 0

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # the base's is of bytes
        if not self._pieces:
            return ""
        assert size is not None
        assert size > 0
        text, times = self._pieces[0]
        length = min(size, len(text) * times) // len(text)
        self._pieces[0] = (text, times - length)
        if times == length:
            self._pieces.pop(0)
        self.most = max(self.most, size)
        return text * length


LONGEST = 8 * LIMIT + 2**20


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_a_line_that_is_too_long_is_skipped_without_being_held(format: str) -> None:
    file = Endless(("a\n", 1), ("x", 50 * LONGEST), ("\n", 1), ("b\n", 1))

    lines = list(read(cast(Any, file), format, {}, set(), LIMIT))

    numbers = [cast(Any, line).number for line in lines]
    assert numbers == ([1, 2, 3] if format == "jsonl" else [2, 3])
    assert "characters or more" in str(lines[-2])
    assert cast(BadLine, lines[-2]).text == ""
    assert file.most <= LONGEST


def test_a_line_that_is_too_long_may_begin_with_json() -> None:
    [line] = read(io.StringIO("[1]" + " " * LONGEST + "2]\n"), "jsonl", {}, FITS, LIMIT)

    assert isinstance(line, BadLine)


def test_lines_within_the_quotes_of_a_row_that_is_too_long_are_not_taken_for_rows() -> None:
    text = 'n\n"' + "5\n" * LONGEST + '"\n7\n'

    bad, good = read(io.StringIO(text, newline=""), "csv", {}, set(), LIMIT)

    assert isinstance(bad, BadLine)
    assert (bad.number, bad.text) == (2, "")
    assert good == Line(LONGEST + 3, [], {"n": "7"}, ["7"], "n\n")
