"""Make jobs of the lines of a file: JSON lines or CSV, of any length, in constant memory, all or nothing.

All that is stored is stored in one transaction. Whoever is killed in the middle has stored nothing, so there is nothing
to resume: run it again. Only one moment is in doubt, as with every commit: killed while the database commits, nobody
has heard the answer. With ``unique`` even then a second run stores only what is missing.

A bad line does not end the reading: all of them are found, and told by number and reason, before anybody decides.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Signature, signature
from pathlib import Path
from typing import IO, Any, NamedTuple

from djqueue.encoding import encode_arguments
from djqueue.exceptions import DjqueueError, InvalidJob
from djqueue.tasks import Task

MAX_TOLD = 100
"""How many bad lines are kept with their reasons; the others are only counted."""
FORMATS = ("jsonl", "csv")


class BadLine(NamedTuple):
    number: int
    reason: str
    text: str
    """As it was read, to be mended."""

    def __str__(self) -> str:
        return f"Line {self.number}: {self.reason}"


class BadLines(DjqueueError):
    """Some lines cannot become jobs, and nothing was stored. ``lines`` are the first of them, ``count`` is how many."""

    def __init__(self, lines: Sequence[BadLine], count: int) -> None:
        super().__init__(f"{count:,} line(s) cannot become jobs. Nothing was stored.")
        self.lines = lines
        self.count = count


class Line(NamedTuple):
    number: int
    args: list[Any]
    kwargs: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """Where a value goes, and what a text becomes on its way."""

    argument: str
    convert: Callable[[str], Any] | None = None

    def of(self, value: Any) -> Any:
        if self.convert is None or not isinstance(value, str):
            return value
        return self.convert(value)


@dataclass(frozen=True, slots=True)
class BulkInserted:
    count: int
    """Jobs stored, or with ``dry_run`` those that would be (duplicates are not looked for)."""
    duplicates: int
    bad: int
    first_id: str | None = None
    last_id: str | None = None


def bulk_insert(
    task: Task,
    file: IO[str],
    *,
    format: str = "jsonl",
    columns: Mapping[str, Column] | None = None,
    batch_size: int = 5000,
    dry_run: bool = False,
    on_bad: Callable[[BadLine], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> BulkInserted:
    """Store a job per line; raise ``BadLines``, and store nothing, if there are bad ones.

    A JSON line is an object of keyword arguments or an array of positional ones; the first line of CSV names the
    arguments. ``columns``: only these, under these names. ``on_bad`` takes each bad line, and the others are stored.
    """
    sorter = _Sorter(task, _read(file, format, columns or {}), on_bad)
    if dry_run:
        count = 0
        for count, _ in enumerate(sorter.good(), 1):
            if on_progress is not None and not count % batch_size:
                on_progress(count)
        return BulkInserted(count, 0, sorter.bad_count)
    result = task.enqueue_many(sorter.good(), batch_size=batch_size, on_progress=on_progress)
    ids = result.ids
    ends = (ids[0], ids[-1]) if ids else (None, None)
    return BulkInserted(result.count, result.duplicates, sorter.bad_count, *ends)


@contextmanager
def open_lines(name: str, format: str = "jsonl") -> Iterator[tuple[IO[str], Callable[[], float | None]]]:
    """Open a file, a gzipped one or ``-``; give also a function that says how much of it was read, from 0 to 1."""
    # Bytes that are no UTF-8 become lone surrogates, which the check of the arguments finds, with their line.
    text: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape"}
    if format == "csv":
        text["newline"] = ""
    if name == "-":
        yield io.TextIOWrapper(sys.stdin.buffer, **text), lambda: None
        return
    path = Path(name)
    size = path.stat().st_size
    with path.open("rb") as raw:
        is_regular = path.is_file()
        source: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        with io.TextIOWrapper(source, **text) as lines:
            yield lines, lambda: min(1.0, raw.tell() / size) if size and is_regular else None


class _Sorter:
    """Parts the good lines from the bad ones."""

    def __init__(self, task: Task, lines: Iterable[Line | BadLine], on_bad: Callable[[BadLine], None] | None) -> None:
        self._task = task
        self._lines = lines
        self._on_bad = on_bad
        self._limit: int = getattr(getattr(task.get_backend(), "settings", None), "max_args_bytes", 2**60)
        self._signature = _signature(task)
        self._known: dict[tuple[Any, ...], str] = {}
        self.bad_count = 0
        self.bad: list[BadLine] = []

    def good(self) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        """Yield what can be stored; at the end raise ``BadLines`` if somebody wanted all or nothing."""
        for line in self._lines:
            if isinstance(line, Line):
                reason = self._problem(line)
                if not reason:
                    if not self.bad_count or self._on_bad is not None:
                        yield line.args, line.kwargs
                    continue
                line = BadLine(line.number, reason, line.text)
            self.bad_count += 1
            if self._on_bad is not None:
                self._on_bad(line)
            elif len(self.bad) < MAX_TOLD:
                self.bad.append(line)
        if self.bad_count and self._on_bad is None:
            raise BadLines(self.bad, self.bad_count)

    def _problem(self, line: Line) -> str:
        shape = (len(line.args), *line.kwargs)
        if (problem := self._known.get(shape)) is None:
            problem = self._misfit(line)
            if len(self._known) < 1000:
                self._known[shape] = problem
        if problem:
            return problem
        try:
            encode_arguments(line.args, line.kwargs, self._limit)
        except InvalidJob as error:
            return str(error)
        return ""

    def _misfit(self, line: Line) -> str:
        if self._signature is None:
            return ""
        try:
            self._signature.bind(*line.args, **line.kwargs)
        except TypeError as error:
            return f"{self._task.module_path}() does not take this: {error}."
        return ""


def _signature(task: Task) -> Signature | None:
    try:
        known = signature(task.func)
    except (TypeError, ValueError):
        return None
    if task.takes_context:
        return known.replace(parameters=[*known.parameters.values()][1:])
    return known


def _read(file: IO[str], format: str, columns: Mapping[str, Column]) -> Iterator[Line | BadLine]:
    if format == "csv":
        return _read_csv(file, columns)
    if format == "jsonl":
        return _read_jsonl(file, columns)
    raise ValueError(f"The format is 'jsonl' or 'csv', not {format!r}.")


def _read_jsonl(file: IO[str], columns: Mapping[str, Column]) -> Iterator[Line | BadLine]:
    loads = json.loads
    for number, text in enumerate(file, 1):
        if text.isspace():
            continue
        try:
            value = loads(text)
        except (ValueError, RecursionError) as error:
            yield BadLine(number, f"This is no JSON: {error}.", text)
            continue
        if isinstance(value, dict):
            yield _line(number, value, columns, text)
        elif isinstance(value, list) and not columns:
            yield Line(number, value, {}, text)
        elif columns:
            yield BadLine(number, "With columns to map, a line is a JSON object.", text)
        else:
            yield BadLine(number, "A line is a JSON object of keyword arguments or an array of positional ones.", text)


def _read_csv(file: IO[str], columns: Mapping[str, Column]) -> Iterator[Line | BadLine]:
    csv.field_size_limit(2**27)
    reader = csv.reader(file, strict=True)
    header = next(reader, None)
    if header is None:
        return
    if missing := [name for name in columns if name not in header]:
        yield BadLine(1, f"There is no column {', '.join(map(repr, missing))}; there are: {', '.join(header)}.", "")
        return
    if len(set(header)) < len(header):
        yield BadLine(1, "Two columns have the same name.", ",".join(header))
        return
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield BadLine(number, f"This is no CSV: {error}.", "")
            continue
        if row is None:
            return
        if not row:
            continue
        if len(row) != len(header):
            yield BadLine(number, f"It has {len(row)} fields, and the first line has {len(header)}.", _csv(row))
        else:
            yield _line(number, dict(zip(header, row, strict=True)), columns, _csv(row))


def _line(number: int, values: dict[str, Any], columns: Mapping[str, Column], text: str) -> Line | BadLine:
    if not columns:
        return Line(number, [], values, text)
    kwargs = {}
    for name, column in columns.items():
        if name not in values:
            return BadLine(number, f"There is no {name!r}.", text)
        try:
            kwargs[column.argument] = column.of(values[name])
        except ValueError as error:
            return BadLine(number, f"{name!r} is {values[name]!r:.60}: {error}.", text)
    return Line(number, [], kwargs, text)


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
        raise ValueError(f"Write it as column=argument or column=argument:type, not {text!r}.")
    if kind and kind not in CONVERTERS:
        raise ValueError(f"The types are {', '.join(CONVERTERS)}, not {kind!r}.")
    return name, Column(argument, CONVERTERS[kind] if kind else None)
