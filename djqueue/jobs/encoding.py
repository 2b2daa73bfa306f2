"""Arguments, results and errors as the JSON text that an engine stores.

What Django's tasks framework accepts is accepted: dicts and other mappings, lists, tuples and other
sequences, bytes in UTF-8, strings, numbers, booleans and None. In addition, the store must be able to store the value and
return it unchanged. So NaN and infinity, NUL, lone surrogates, keys that are not strings and very deep nesting are refused,
and the message names their position. Other types are refused rather than converted.

The round trip: tuples come back as lists, bytes as strings, and mappings as dicts, whose keys PostgreSQL sorts
(``jsonb``). A float from 1e16 comes back as an int of the same value, and ``-0.0`` as ``0.0``. All other values come
back equal and with the same type.

The common case is one ``json.dumps`` in C and a few substring searches; only values that these cannot rule out
are checked in Python.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from djqueue.adapters.python import json_encode
from djqueue.exceptions import InvalidArguments, InvalidResult, JobTooLarge, ResultTooLarge
from djqueue.hooks import MAX_TRACEBACK_CHARS, class_path, shorten, text_of
from djqueue.jobs.tracebacks import format_error

MAX_DEPTH = 200
"""Maximum nesting of lists and dicts: readers recurse, and Python 3.11 allows a thousand frames in total."""
MAX_ARGS_BYTES = 64 * 1024 * 1024
"""The upper limit of ``max_args_bytes``, on every backend."""

_plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_dumps = json_encode(_plain)


class Encoded(NamedTuple):
    """The arguments of a job as JSON."""

    args: str
    kwargs: str


def encode_arguments(args: Sequence[Any], kwargs: Mapping[str, Any], limit: int) -> Encoded:
    """Encode the arguments of a job.

    Raise ``InvalidArguments`` naming the invalid value, or ``JobTooLarge`` if they take more than ``limit`` bytes.
    """
    try:
        encoded = Encoded(_encode(args, "args") if args else "[]", _encode(kwargs, "kwargs") if kwargs else "{}")
    except _Unstorable as error:
        raise InvalidArguments(f"{error} (Arguments are stored as JSON.)") from None
    size = _size(encoded.args) + _size(encoded.kwargs)
    if size > limit:
        raise JobTooLarge(
            f"The arguments take {size:,} bytes as JSON, and max_args_bytes allows {limit:,}. "
            "Store the data elsewhere and pass a reference to it."
        )
    return encoded


def encode_result(value: object, limit: int) -> str:
    """Encode the return value of a task; raise ``InvalidResult`` or ``ResultTooLarge`` if it cannot be stored."""
    if value is None:
        return "null"
    try:
        text = _encode(value, "The returned value")
    except _Unstorable as error:
        raise InvalidResult(f"{error} (What a task returns is stored as JSON.)") from None
    if (size := _size(text)) > limit:
        raise ResultTooLarge(
            f"The returned value takes {size:,} bytes as JSON, and max_result_bytes allows {limit:,}. "
            "Store it elsewhere and return a reference to it."
        )
    return text


def encode_error(
    error: BaseException,
    *,
    attempt: int,
    worker: object = "",
    at: datetime | None = None,
    traceback: str | None = None,
    problem: BaseException | None = None,
) -> str:
    """Encode the entry of a failed attempt for its job's errors. Never fails.

    ``problem`` is the exception that the project's own retry rules raised for ``error``.
    """
    message = storable(error, 2_000)
    if problem is not None:
        message = storable(f"{message} (Then its rules failed with {class_path(problem)}: {text_of(problem)})", 2_000)
    return _dumps(
        {
            "attempt": attempt,
            "at": (at or datetime.now(UTC)).isoformat(),
            "worker": storable(worker, 200),
            "exception": storable(class_path(error), 500),
            "message": message,
            "traceback": storable(format_error(error) if traceback is None else traceback),
        }
    )


def is_storable(text: str) -> bool:
    """Return whether a store can store a text unchanged: it has no NUL and no lone surrogate."""
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def storable(text: object, limit: int = MAX_TRACEBACK_CHARS) -> str:
    """Replace characters that cannot be stored, and shorten a text that is too long in its middle. Never fails."""
    text = shorten(text_of(text), limit)
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-8", "replace").decode()
    return text


def in_ascii(text: str | None) -> str | None:
    """Replace characters in the strings of a JSON text that the store's encoding does not have."""
    return None if text is None else _NOT_ASCII.sub(_spell_out, text)


def _spell_out(match: re.Match[str]) -> str:
    # Two backslashes in JSON are one in the text: the store would turn a JSON escape back into the character.
    return match[0].encode("ascii", "backslashreplace").decode().replace("\\", r"\\")


_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_CONTAINERS = (dict, list, tuple)


class _Unstorable(Exception):
    """JSON or the store cannot represent a value. The message names it."""


def _encode(value: Any, path: str) -> str:
    try:
        text = _dumps(value)
        # These are only hints: the six characters \\u0000 may be intended, and a bracket may be part of a string.
        if (
            "\\u0000" not in text
            and "e+" not in text
            and (("{" not in text and text.count("[") < MAX_DEPTH) or _has_plain_containers(value))
        ):
            text.isascii() or text.encode()
            return text
    except (TypeError, ValueError, RecursionError, OverflowError):
        pass
    return _dumps(_normalise(value, path, 0))


def _has_plain_containers(value: Any) -> bool:
    """Return whether all keys are strings and nothing is nested too deep.

    The encoder would silently write the keys 1, None and True as strings. Plain loops, because generators take three times
    as long and this is most of the time that encoding a dict takes.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                for key in container:
                    if type(key) is not str:
                        return False
                container = container.values()
            for item in container:
                if isinstance(item, _CONTAINERS):
                    deeper.append(item)
        if not deeper:
            return True
        level = deeper
    return False


def _normalise(value: Any, path: str, depth: int) -> Any:
    """Convert a value to plain JSON values, or raise ``_Unstorable`` about the first one that cannot be converted."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        try:
            int.__repr__(value)
        except ValueError:
            raise _Unstorable(f"{path} has more digits than Python reads back. Pass it as a string.") from None
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Unstorable(f"{path} is {float(value)!r}, which JSON has no word for. Pass None or a string.")
        # PostgreSQL writes 1e16 without its exponent, and Python reads an int. Its value would differ if the digits were
        # the shortest that identify the float.
        return int(value) if abs(value) >= 1e16 else value
    if isinstance(value, bytes):
        try:
            return _text(value.decode(), path)
        except UnicodeDecodeError:
            raise _Unstorable(f"{path} is bytes that are no UTF-8. Pass them in base64.") from None
    if depth >= MAX_DEPTH:
        raise _Unstorable(f"{path[:60]}… is nested deeper than {MAX_DEPTH} levels, or contains itself.")
    if isinstance(value, Mapping):
        items = {}
        for key, item in value.items():
            name = _key(key, path)
            items[name] = _normalise(item, _place(path, name), depth + 1)
        return items
    if isinstance(value, Sequence):
        return [_normalise(item, _place(path, place), depth + 1) for place, item in enumerate(value)]
    raise _Unstorable(f"{path} is {_a(value)}. {_advice(value)}")


def _place(path: str, key: object) -> str:
    # Long keys and thousands of levels would make the message too long to read.
    step = f"[{key!r}]"
    return f"{path}{step if len(step) < 60 else step[:50] + '…]'}" if len(path) < 300 else path


def _key(key: object, path: str) -> str:
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            raise _Unstorable(f"{path} has a key of bytes that are no UTF-8: {key!r:.80}.") from None
    if not isinstance(key, str):
        raise _Unstorable(f"{path} has the key {key!r:.80}, {_a(key)}. JSON knows strings as keys only: use str(key).")
    return _text(key, f"A key of {path}")


def _text(value: str, path: str) -> str:
    if "\0" in value:
        raise _Unstorable(f"{path} contains a NUL character, which cannot be stored. Remove it.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Unstorable(
            f"{path} contains a lone surrogate, half of a character, which cannot be stored. "
            "Was it read from a file name or with errors='surrogateescape'?"
        ) from None
    return value


def _a(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[:1].lower() in "aeio" else f"a {name}"


def _advice(value: object) -> str:
    if isinstance(value, datetime | date | time):
        return "Pass .isoformat()."
    if isinstance(value, timedelta):
        return "Pass .total_seconds()."
    if isinstance(value, Decimal | UUID):
        return "Pass str(value)."
    if isinstance(value, Enum):
        return "Pass its .value."
    if isinstance(value, set | frozenset):
        return "Pass a list."
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return "Pass its primary key and load it in the task."
    if hasattr(value, "values_list"):
        return "Pass list(….values_list('pk', flat=True))."
    if type(value).__name__ == "__proxy__":
        return "It is a lazy translation: pass str(value)."
    return "Pass strings, numbers, lists and dicts."


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
