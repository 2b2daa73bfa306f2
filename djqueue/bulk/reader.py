"""Read the lines of a file, JSON or CSV, as the arguments of a task.

Most lines of a file are alike. A JSON line with the same shape as an earlier one, and whose text the store can hold
unchanged, is passed on as that text: it is parsed to check that it is JSON, but it is not encoded again. All other lines
are checked value by value.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from djqueue.jobs.encoding import MAX_ARGS_BYTES, MAX_DEPTH, Encoded

FORMATS = ("jsonl", "csv")
Shape = tuple[str, ...] | int
"""The names of the keyword arguments in their order, or the number of positional ones."""


_UNDECODED = re.compile("[\udc80-\udcff]")
NOT_UTF8 = "The line is not UTF-8."
CONVERT = "Convert the file: if it is Latin-1, with iconv -f latin1 -t utf-8; if it comes from Windows, perhaps with -f utf-16 or cp1252."


class BadLine(NamedTuple):
    number: int
    reason: str
    text: str
    """The line as it was read, so that it can be corrected."""
    header: str = ""
    """The header line of the CSV file, which is needed to understand the text."""

    def __str__(self) -> str:
        return f"Line {self.number}: {self.reason}"

    @property
    def is_undecoded(self) -> bool:
        """Whether it contains bytes that are not text."""
        return _UNDECODED.search(self.text) is not None


class Line(NamedTuple):
    number: int
    args: list[Any]
    kwargs: dict[str, Any]
    raw: str | list[str]
    """The line as it was read: a text, or the fields of a CSV row."""
    header: str = ""

    @property
    def shape(self) -> Shape | None:
        """None: it has both positional and keyword arguments."""
        return tuple(self.kwargs) if not self.args else len(self.args) if not self.kwargs else None

    def bad(self, reason: str) -> BadLine:
        return BadLine(self.number, reason, self.raw if isinstance(self.raw, str) else _csv(self.raw), self.header)


@dataclass(frozen=True, slots=True)
class Column:
    """The argument that a column is mapped to, and the conversion of its text."""

    argument: str
    convert: Callable[[str], Any] | None = None

    def of(self, value: Any) -> Any:
        if self.convert is None or not isinstance(value, str):
            return value
        return self.convert(value)


@contextmanager
def open_lines(name: str, format: str = "jsonl") -> Iterator[tuple[IO[str], Callable[[], float | None]]]:
    """Open a file, a gzipped file or ``-``; also return a function that returns the fraction read so far, from 0 to 1."""
    # Bytes that are not UTF-8 become lone surrogates, which the check of the arguments reports with the line.
    text: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape"}
    if format == "csv":
        text["newline"] = ""
    if name == "-":
        if sys.stdin is None:
            raise OSError("Standard input is closed.")
        # Not sys.stdin: the interpreter takes its lock at exit, while a thread may still be waiting for a line.
        yield open(sys.stdin.fileno(), closefd=False, **text), lambda: None  # noqa: SIM115  it is not ours to close
        return
    path = Path(name)
    size = path.stat().st_size
    with path.open("rb") as raw:
        is_regular = path.is_file()
        source: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        with io.TextIOWrapper(source, **text) as lines:
            yield lines, lambda: min(1.0, raw.tell() / size) if size and is_regular else None


def read(
    file: IO[str], format: str, columns: Mapping[str, Column], fits: Collection[Shape], limit: int
) -> Iterator[Encoded | Line | BadLine]:
    """Read a file. ``fits``: shapes that are known to be right, which may grow meanwhile; ``limit``: bytes of a line's
    arguments. What comes as ``Encoded`` needs no further look."""
    # Allow headroom for escapes and unmapped columns. Longer lines are not kept, because a file may have no line ends.
    longest = 8 * min(limit, MAX_ARGS_BYTES) + 2**20
    if format == "csv":
        return _read_csv(file, columns, longest)
    if format == "jsonl":
        return _read_jsonl(file, columns, fits, limit, longest)
    raise ValueError(f"Invalid format {format!r}: use 'jsonl' or 'csv'.")


def _too_long(number: int, longest: int, what: str) -> BadLine:
    return BadLine(
        number, f"{what} has {longest:,} characters or more, which max_args_bytes rules out. It is not kept.", ""
    )


# JSON


class _InDoubt(Exception):
    """A number that the store may interpret differently from Python."""


def _plain_float(text: str) -> float:
    # Neither a number that overflows to infinity nor one that comes back with an exponent or as an integer.
    if len(text) > 25 or text.find(".") > 16 or "e" in text or "E" in text:
        raise _InDoubt
    return float(text)


def _refuse(name: str) -> float:
    raise _InDoubt  # NaN, Infinity


# The standard library's scanner: json.loads also searches for surrounding whitespace with regular expressions.
_decoder: Any = json.JSONDecoder(parse_float=_plain_float, parse_constant=_refuse)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once


def _read_jsonl(
    file: IO[str], columns: Mapping[str, Column], fits: Collection[Shape], limit: int, longest: int
) -> Iterator[Encoded | Line | BadLine]:
    for number, text in enumerate(iter(partial(file.readline, longest), ""), 1):
        if len(text) == longest:  # the part that was read may be valid JSON
            while text and not text.endswith("\n"):
                text = file.readline(longest)
            yield _too_long(number, longest, "It")
            continue
        if not columns:
            try:
                value, end = _scan(text, 0)
            except (StopIteration, ValueError, RecursionError, _InDoubt):
                pass
            else:
                if type(value) is dict:
                    if tuple(value) in fits and _is_storable(text, end, limit):
                        yield Encoded("[]", text[:end])
                        continue
                elif type(value) is list and len(value) in fits and _is_storable(text, end, limit):
                    yield Encoded(text[:end], "{}")
                    continue
        if not text.isspace():
            yield _json_line(number, text, columns)


def _is_storable(text: str, end: int, limit: int) -> bool:
    """Return whether the JSON at the start of a line can certainly be stored unchanged."""
    # The usual case: no escapes, no tabs between tokens, and too short for deep nesting.
    if not (text.isascii() and len(text) <= 2 * MAX_DEPTH and len(text) <= limit and "\\" not in text):
        if "\\u0000" in text or "\\ud" in text or "\\uD" in text:
            return False
        if text.count("[") + text.count("{") >= MAX_DEPTH:
            return False
        try:
            if len(text.encode()) > limit:
                return False
        except UnicodeEncodeError:
            return False
    return "\t" not in text and "\r" not in text and (text[end:] == "\n" or not text[end:].strip(" \n"))


def _json_line(number: int, text: str, columns: Mapping[str, Column]) -> Line | BadLine:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadLine(number, f"Invalid JSON: {error}.", text)
    if isinstance(value, dict):
        return _line(number, value, columns, text)
    if isinstance(value, list) and not columns:
        return Line(number, value, {}, text)
    if columns:
        return BadLine(number, "Invalid line: use a JSON object if columns are mapped.", text)
    return BadLine(
        number, "Invalid line: use a JSON object of keyword arguments or an array of positional arguments.", text
    )


# CSV


class _TooLong(Exception):
    """A row is longer than any that could become a job."""


class _Rows:
    """The lines of a file for the csv module. Remembers the lines of the current row, which may span several."""

    def __init__(self, file: IO[str], longest: int) -> None:
        self._file = file
        self._longest = self._room = longest
        self._taken: list[str] = []
        self.number = 0
        """The number of the line that was read last."""

    def begin(self) -> None:
        """Forget the last row."""
        self._taken.clear()
        self._room = self._longest

    @property
    def text(self) -> str:
        """The row as it was read."""
        return "".join(self._taken)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not (text := self._file.readline(self._room)):
            raise StopIteration
        self.number += 1
        self._taken.append(text)
        self._room -= len(text)
        if self._room <= 0:
            raise _TooLong
        return text

    def skip(self) -> None:
        """Skip to the end of a row that is too long. Quoted lines are part of it and must not be read as rows."""
        is_quoted = self.text.count('"') % 2 == 1
        text = self._taken[-1]
        self._taken.clear()
        while (is_ended := text.endswith("\n")) is False or is_quoted:
            if not (text := self._file.readline(self._longest)):
                return
            self.number += is_ended
            is_quoted ^= text.count('"') % 2 == 1


def _read_csv(file: IO[str], columns: Mapping[str, Column], longest: int) -> Iterator[Encoded | Line | BadLine]:
    csv.field_size_limit(2**27)
    rows = _Rows(file, longest)
    reader = csv.reader(rows, strict=True)
    first = ""
    header: list[str] | None = None
    while True:
        number = rows.number + 1
        rows.begin()
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield BadLine(number, f"Invalid CSV: {error}.", rows.text, first)
            row = []
        except _TooLong:
            rows.skip()
            yield _too_long(number, longest, "The row that begins here (is there a quote that nothing closes?)")
            row = []
        if row is None:
            return
        if header is None:
            if problem := _header_problem(row, columns):
                yield BadLine(number, problem, "")
            if not row or problem:
                return
            header, first = row, _csv(row)
        elif row and len(row) != len(header):
            problem = f"The row has {len(row)} fields, but the first line has {len(header)}."
            yield BadLine(number, problem, rows.text, first)
        elif row:
            yield _line(number, dict(zip(header, row, strict=True)), columns, row, first)


def _header_problem(header: Sequence[str], columns: Mapping[str, Column]) -> str:
    if _UNDECODED.search("".join(header)):
        return f"{NOT_UTF8} {CONVERT}"
    if len(header) == 1 and header[0] not in columns:
        for separator, name in ((";", "semicolons"), ("\t", "tabs")):
            if separator in header[0]:
                return f"The columns are separated by {name}. Use commas."
    if missing := [name for name in columns if name not in header]:
        return f"There is no column {', '.join(map(repr, missing))}; there are: {', '.join(header)}."
    return "Two columns have the same name." if len(set(header)) < len(header) else ""


def _line(
    number: int, values: dict[str, Any], columns: Mapping[str, Column], raw: str | list[str], header: str = ""
) -> Line | BadLine:
    if not columns:
        return Line(number, [], values, raw, header)
    kwargs = {}
    for name, column in columns.items():
        if name not in values:
            return Line(number, [], {}, raw, header).bad(f"There is no {name!r}.")
        try:
            kwargs[column.argument] = column.of(values[name])
        except ValueError as error:
            return Line(number, [], {}, raw, header).bad(f"{name!r} is {values[name]!r:.60}: {error}.")
    return Line(number, [], kwargs, raw, header)


def _csv(row: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue()


def _bool(text: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if (value := known.get(text.strip().lower())) is None:
        raise ValueError("a bool is true, false, yes, no, 1 or 0")
    return value


CONVERTERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": _bool,
    "json": json.loads,
}


def parse_column(text: str) -> tuple[str, Column]:
    """Parse ``column=argument`` or ``column=argument:type``."""
    name, equals, target = text.partition("=")
    argument, _, kind = target.partition(":")
    if not (name and equals and argument.isidentifier()):
        raise ValueError(f"Invalid column {text!r}: use column=argument or column=argument:type.")
    if kind and kind not in CONVERTERS:
        raise ValueError(f"Invalid type {kind!r}: use {', '.join(CONVERTERS)}.")
    return name, Column(argument, CONVERTERS[kind] if kind else None)
