"""The items that ``enqueue_many`` takes and the ids that it gives back."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any, TypeGuard, cast, overload

from djqueue.exceptions import InvalidArguments, InvalidJob
from djqueue.jobs.encoding import Encoded, encode_arguments

Pair = tuple[Sequence[Any], Mapping[str, Any]]
Items = Iterable[Pair | Encoded]
"""Pairs of args and kwargs, or pairs already encoded by ``encode_arguments``."""

_IN_MEMORY_BYTES = 4 * 1024 * 1024
_CHUNK_CHARACTERS = 8_000_000
"""Jobs with large arguments are sent in smaller chunks: 5,000 jobs of 256 KB would take gigabytes."""


class Chunks:
    """The items, encoded and checked, in chunks limited by number and by size. Items are read only when a chunk is requested."""

    def __init__(
        self,
        items: Items,
        size: int,
        max_args_bytes: int,
        check: Callable[[Sequence[Any], Mapping[str, Any]], None] = lambda args, kwargs: None,
    ) -> None:
        self.is_listed = type(items) in (list, tuple)
        """Whether reading the items has no side effects. A generator may write to the database."""
        self._source = enumerate(items)
        self._size = size
        self._max_args_bytes = max_args_bytes
        self._check = check
        self._is_read = False
        self._first: list[Encoded] = []

    @cached_property
    def is_single(self) -> bool:
        """Whether the first chunk is the only one. Reads the first chunk."""
        self._first = self._read()
        return self._is_read

    def __iter__(self) -> Iterator[list[Encoded]]:
        chunk, self._first = self._first or self._read(), []
        while chunk:
            yield chunk
            chunk = [] if self._is_read else self._read()

    def _read(self) -> list[Encoded]:
        chunk: list[Encoded] = []
        characters = 0
        for position, item in islice(self._source, self._size):
            if type(item) is Encoded:  # a line of a file, checked with its number
                encoded = item
            else:
                try:
                    args, kwargs = item if _is_plain_pair(item) else _pair(item)
                    encoded = encode_arguments(args, kwargs, self._max_args_bytes)
                    self._check(args, kwargs)
                except InvalidJob as error:
                    raise type(error)(f"Item {position}: {error}") from None
            chunk.append(encoded)
            characters += len(encoded.args) + len(encoded.kwargs)
            if characters > _CHUNK_CHARACTERS:
                break
        self._is_read = len(chunk) < self._size and characters <= _CHUNK_CHARACTERS
        return chunk


@contextmanager
def read_to_the_end(chunks: Iterable[list[Encoded]]) -> Iterator[Iterator[list[Encoded]]]:
    """Read all chunks before the first is yielded, so that a bad item is found first. Beyond a few megabytes, use a temporary file."""
    with SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        for chunk in chunks:
            file.write(json.dumps(chunk).encode())
            file.write(b"\n")
        file.seek(0)
        yield ([Encoded(*pair) for pair in json.loads(line)] for line in file)


class Ids(Sequence[str]):
    """Ids as strings, stored in eight bytes each: a million strings would take a hundred megabytes."""

    def __init__(self, ids: array[int]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [str(id) for id in self._ids[place]]
        return str(self._ids[place])

    def __repr__(self) -> str:
        return f"<{len(self)} ids>"


def _is_plain_pair(item: object) -> TypeGuard[Pair]:
    """Return whether an item is a plain pair, the usual case. Other items need the slower check."""
    return type(item) is tuple and len(item) == 2 and type(item[0]) in (tuple, list) and type(item[1]) is dict


def _pair(item: object) -> Pair:
    if (
        isinstance(item, list | tuple)
        and len(item) == 2
        and isinstance(item[0], list | tuple)
        and isinstance(item[1], Mapping)
    ):
        return cast("Pair", tuple(item))
    raise InvalidArguments(f"each item is a pair of args and kwargs, like ((1, 2), {{'name': 3}}), not {item!r:.100}.")
