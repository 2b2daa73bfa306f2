from __future__ import annotations

import json
import uuid
from collections import OrderedDict, deque
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils.translation import gettext_lazy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from djqueue import InvalidArguments, InvalidResult, JobTooLarge, ResultTooLarge, compat
from djqueue.jobs.encoding import MAX_DEPTH, encode_arguments, encode_error, encode_result, storable

LIMIT = 10_000_000


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def encode(value: Any) -> Any:
    return json.loads(encode_arguments((value,), {}, LIMIT).args)[0]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner)
    ),
)


@given(value=json_values)
def test_json_values_survive(value: Any) -> None:
    assert encode(value) == value


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(value=json_values)
def test_json_values_survive_postgresql(value: Any) -> None:
    text = encode_arguments((value,), {}, LIMIT).args

    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text", [text])
        [stored] = cursor.fetchone()

    assert json.loads(stored) == [value]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.just("\ud800"),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers() | st.binary(), inner)
    ),
)


@given(value=anything)
def test_whatever_is_accepted_is_what_the_framework_makes_of_it(value: Any) -> None:
    try:
        encoded = encode(value)
    except InvalidArguments:
        return

    assert encoded == compat.normalize_json(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2,)), [1, [2]]),
        (b"bytes", "bytes"),
        (range(3), [0, 1, 2]),
        (deque([1, b"2"]), [1, "2"]),
        (OrderedDict(a=(1,)), {"a": [1]}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ({b"key": b"value"}, {"key": "value"}),
        (Level.LOW, 1),
        (10**400, 10**400),
        (4.612381987765074e16, int(4.612381987765074e16)),
        ("\\u0000", "\\u0000"),
        ("\x7f\x01\n", "\x7f\x01\n"),
        ("[" * 1000, "[" * 1000),
        ([{}] * 1000, [{}] * 1000),
        (nested(MAX_DEPTH - 1), nested(MAX_DEPTH - 1)),
    ],
)
def test_what_the_framework_accepts_is_accepted(value: Any, expected: Any) -> None:
    assert encode(value) == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([{"when": datetime(2026, 1, 1, tzinfo=UTC)}], "args[0][0]['when'] is a datetime. Pass .isoformat()."),
        (date(2026, 1, 1), "args[0] is a date. Pass .isoformat()."),
        (timedelta(1), "args[0] is a timedelta. Pass .total_seconds()."),
        (Decimal(1), "args[0] is a Decimal. Pass str(value)."),
        (uuid.UUID(int=1), "args[0] is a UUID. Pass str(value)."),
        (Colour.RED, "Pass its .value."),
        ({1, 2}, "args[0] is a set. Pass a list."),
        (User(pk=1), "args[0] is a User. Pass its primary key"),
        (User.objects.all(), "values_list('pk', flat=True)"),
        (gettext_lazy("yes"), "lazy translation"),
        ((i for i in ()), "args[0] is a generator."),
        (float("nan"), "args[0] is nan"),
        ({"a": [float("-inf")]}, "args[0]['a'][0] is -inf"),
        ("a\0b", "args[0] contains a NUL character, which cannot be stored"),
        ({"a\0": 1}, "A key of args[0] contains a NUL character"),
        ("\ud800", "args[0] contains a lone surrogate"),
        ({"\udfff": 1}, "A key of args[0] contains a lone surrogate"),
        ({1: 2}, "args[0] has the key 1, an int."),
        ({"a": {None: 2}}, "args[0]['a'] has the key None"),
        ({True: 2}, "has the key True"),
        ({(1, 2): 2}, "has the key (1, 2)"),
        (b"\xff", "args[0] is bytes that are no UTF-8"),
        ({b"\xff": 1}, "a key of bytes that are no UTF-8"),
        (10**5000, "args[0] has more digits than Python reads back"),
        (nested(MAX_DEPTH), f"deeper than {MAX_DEPTH} levels"),
        (nested(900), f"deeper than {MAX_DEPTH} levels"),
        (nested(100_000), f"deeper than {MAX_DEPTH} levels"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) and "\0" not in value and value.isascii() else "",
)
def test_what_cannot_be_stored_is_refused_with_the_place_and_the_remedy(value: Any, sentence: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        encode_arguments((value,), {}, LIMIT)

    assert sentence in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(InvalidArguments, match="contains itself"):
        encode(value)


def test_keyword_arguments_are_named_in_the_message() -> None:
    with pytest.raises(InvalidArguments, match=r"kwargs\['since'\] is a date"):
        encode_arguments((), {"since": date(2026, 1, 1)}, LIMIT)
    with pytest.raises(InvalidArguments, match="kwargs has the key 1"):
        encode_arguments((), {1: 2}, LIMIT)  # type: ignore[dict-item]


def test_a_refusal_is_a_type_error_and_a_value_error_as_the_framework_raises() -> None:
    with pytest.raises(TypeError):
        encode(object())
    with pytest.raises(ValueError, match="UTF-8"):
        encode(b"\xff")


def test_the_size_is_counted_in_bytes_of_both() -> None:
    encode_arguments(("x" * 100,), {"a": "x" * 100}, 212)

    with pytest.raises(JobTooLarge, match=r"212 bytes as JSON, and max_args_bytes allows 211"):
        encode_arguments(("x" * 100,), {"a": "x" * 100}, 211)
    with pytest.raises(JobTooLarge):
        encode_arguments(("€" * 100,), {}, 299)


@pytest.mark.parametrize("value", [None, 1, "x", [1], {"a": (1,)}, 0.5, True])
def test_results_are_encoded_alike(value: Any) -> None:
    assert json.loads(encode_result(value, LIMIT)) == compat.normalize_json(value)


@pytest.mark.parametrize("value", [object(), float("nan"), "\0", "\ud800", {1: 2}, nested(1000), b"\xff"])
def test_a_result_that_cannot_be_stored_raises_invalid_result(value: Any) -> None:
    with pytest.raises(InvalidResult, match="The returned value"):
        encode_result(value, LIMIT)


def test_a_result_above_the_limit_raises_result_too_large() -> None:
    with pytest.raises(ResultTooLarge, match="max_result_bytes"):
        encode_result("x" * 2000, 1024)


@given(text=st.text(st.characters()) | st.just("\0\ud800"), limit=st.integers(min_value=0, max_value=300))
def test_storable_text_is_always_storable_and_never_longer(text: str, limit: int) -> None:
    stored = storable(text * 3, limit)

    assert "\0" not in stored
    assert len(stored) <= limit
    stored.encode()


def test_storable_keeps_the_beginning_and_the_end_of_a_long_text() -> None:
    stored = storable("begin" + "x" * 100_000 + "end", 1000)

    assert stored.startswith("begin")
    assert stored.endswith("end")
    assert "left out" in stored


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)

    __repr__ = __str__


class SelfCaused(Exception):
    pass


@pytest.mark.django_db
@pytest.mark.parametrize("message", ["plain", "NUL \0", "surrogate \ud800", "x" * 1_000_000])
def test_an_error_entry_can_always_be_stored(message: str) -> None:
    try:
        raise ValueError(message)
    except ValueError as error:
        entry = encode_error(error, attempt=2, worker=uuid.UUID(int=5))

    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text", [entry])
        stored = json.loads(cursor.fetchone()[0])
    assert set(stored) == {"attempt", "at", "worker", "exception", "message", "traceback"}
    assert stored["exception"] == "builtins.ValueError"
    assert stored["worker"] == str(uuid.UUID(int=5))
    assert "Traceback" in stored["traceback"]


def test_an_exception_that_cannot_be_shown_still_leaves_an_entry() -> None:
    error = Unprintable()
    error.__cause__ = error

    entry = json.loads(encode_error(error, attempt=1))

    assert entry["exception"].endswith("Unprintable")
    assert "in __str__" in entry["message"]
