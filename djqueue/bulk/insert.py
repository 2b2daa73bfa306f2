"""Store a job for each line of a file, JSON lines or CSV, of any length, in constant memory, all or nothing.

All jobs are stored in one transaction. A process that is killed before the commit has stored nothing: run it again. If it
is killed during the commit, the outcome is unknown, as with every commit. With ``unique``, a second run then stores only the
missing jobs.

A bad line does not stop the reading: all bad lines are found and reported by number and reason before the error is raised.

A thread reads and checks a few thousand lines ahead of those that the database is storing meanwhile, so the two take turns
on one processor, or work side by side on two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Signature, signature
from itertools import chain
from queue import SimpleQueue
from typing import IO, Any

from djqueue import stores
from djqueue.bulk.reader import CONVERT, NOT_UTF8, BadLine, Column, Line, Shape, read
from djqueue.exceptions import DjqueueError, InvalidJob
from djqueue.jobs.compression import decode_arguments
from djqueue.jobs.encoding import Encoded, encode_arguments
from djqueue.tasks.task import Task

MAX_TOLD = 100
"""Number of bad lines that are kept with their reasons. Further ones are only counted."""
_AHEAD = 2
"""Number of chunks that are read ahead."""
_CHUNK_CHARACTERS = 2_000_000
_NO_LIMIT = 2**60


class BadLines(DjqueueError):
    """Some lines cannot become jobs, and nothing was stored. ``lines`` are the first of them, ``count`` is their number."""

    def __init__(self, lines: Sequence[BadLine], count: int) -> None:
        super().__init__(f"{count:,} line{' is' if count == 1 else 's are'} invalid. Nothing was stored.")
        self.lines = lines
        self.count = count


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
    on_read: Callable[[], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> BulkInserted:
    """Store a job per line; raise ``BadLines``, and store nothing, if there are bad ones.

    A JSON line is an object of keyword arguments or an array of positional ones; the first line of CSV names the
    arguments. ``columns``: only these, under these names. ``on_bad`` takes each bad line, and the others are stored;
    ``on_read`` is called when all lines are read, before anything is committed: if it raises, nothing is stored. Both are
    called in a thread that reads ahead.
    """
    sorter = _Sorter(task, on_bad, on_read)
    sorter.check(columns or {})
    chunks = sorter.chunks(file, format, columns or {}, batch_size)
    if dry_run:
        count = 0
        for chunk in chunks:
            count += len(chunk)
            if on_progress is not None:
                on_progress(count)
        return BulkInserted(count, 0, sorter.bad_count)
    with _ahead(chunks) as ready:
        items: Iterator[Any] = chain.from_iterable(ready)
        if stores.find(task.backend) is None:
            items = (decode_arguments(*encoded) for encoded in items)
        result = task.enqueue_many(items, batch_size=batch_size, on_progress=on_progress)
    ids = result.ids
    ends = (ids[0], ids[-1]) if ids else (None, None)
    return BulkInserted(result.count, result.duplicates, sorter.bad_count, *ends)


class _Sorter:
    """Separates the good lines from the bad ones."""

    def __init__(
        self, task: Task, on_bad: Callable[[BadLine], None] | None, on_read: Callable[[], None] | None
    ) -> None:
        self._task = task
        self._on_bad = on_bad
        self._on_read = on_read
        store = stores.find(task.backend)
        self._limit = _NO_LIMIT if store is None else store.settings.max_args_bytes
        self._signature = _signature(task)
        self._fits: set[Shape] = set()
        self._is_advised = False
        self.bad_count = 0
        self.bad: list[BadLine] = []

    def check(self, columns: Mapping[str, Column]) -> None:
        """Raise ``ValueError`` if a column is mapped to a parameter that the task does not have."""
        if self._signature is None:
            return
        parameters = self._signature.parameters
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            return
        if unknown := [column.argument for column in columns.values() if column.argument not in parameters]:
            raise ValueError(
                f"{self._task.module_path}() has no parameter {', '.join(map(repr, unknown))}."
                f" It has: {', '.join(parameters) or 'none'}."
            )

    def chunks(self, file: IO[str], format: str, columns: Mapping[str, Column], size: int) -> Iterator[list[Encoded]]:
        """Yield the jobs that can be stored. At the end, raise ``BadLines`` if there were bad lines and no ``on_bad``."""
        chunk: list[Encoded] = []
        characters = 0
        for line in read(file, format, columns, self._fits, self._limit):
            encoded = line if type(line) is Encoded else self._look(line)  # type: ignore[arg-type]  # the others
            if encoded is None or (self.bad_count and self._on_bad is None):
                continue
            chunk.append(encoded)
            characters += len(encoded[0]) + len(encoded[1])
            if len(chunk) == size or characters > _CHUNK_CHARACTERS:
                yield chunk
                chunk, characters = [], 0
        if chunk:
            yield chunk
        if self.bad_count and self._on_bad is None:
            raise BadLines(self.bad, self.bad_count)
        if self._on_read is not None:
            self._on_read()

    def _look(self, line: Line | BadLine) -> Encoded | None:
        """Return the arguments of a good line, and record a bad one."""
        if isinstance(line, Line):
            found = self._encode(line)
            if isinstance(found, Encoded):
                return found
            line = line.bad(found)
        if line.is_undecoded:
            line = line._replace(reason=NOT_UTF8 if self._is_advised else f"{NOT_UTF8} {CONVERT}")
            self._is_advised = True
        self.bad_count += 1
        if self._on_bad is not None:
            self._on_bad(line)
        elif len(self.bad) < MAX_TOLD:
            self.bad.append(line)
        return None

    def _encode(self, line: Line) -> Encoded | str:
        """Return the arguments as JSON, or the reason why the line is bad."""
        shape = line.shape
        if shape not in self._fits:
            if problem := self._misfit(line):
                return problem
            if shape is not None and len(self._fits) < 1000:
                self._fits.add(shape)
        try:
            return encode_arguments(line.args, line.kwargs, self._limit)
        except InvalidJob as error:
            return str(error)

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


@contextmanager
def _ahead(chunks: Iterator[list[Encoded]]) -> Iterator[Iterator[list[Encoded]]]:
    """Read the chunks in a thread, a few ahead of the consumer. Exceptions of the thread are raised in the consumer."""
    ready: SimpleQueue[list[Encoded] | BaseException | None] = SimpleQueue()
    room = threading.Semaphore(_AHEAD)
    is_over = threading.Event()

    def pull() -> None:
        try:
            for chunk in chunks:
                ready.put(chunk)
                room.acquire()
                if is_over.is_set():
                    return
        except BaseException as error:
            ready.put(error)
        else:
            ready.put(None)

    def take() -> Iterator[list[Encoded]]:
        while (chunk := ready.get()) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            room.release()
            yield chunk

    # A daemon thread, and joined with a timeout: a read from a pipe may wait for a line that never comes.
    thread = threading.Thread(target=pull, name="djqueue-bulk-reader", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        is_over.set()
        room.release()
        thread.join(1)
