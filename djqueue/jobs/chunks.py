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
"""Pairs of args and kwargs, or what ``encode_arguments`` made of one."""

_IN_MEMORY_BYTES = 4 * 1024 * 1024
_CHUNK_CHARACTERS = 8_000_000
"""Jobs with large arguments travel in smaller chunks: 5,000 of 256 KB would take gigabytes."""


class Chunks:
    """The items encoded and checked, in chunks of so many or of a few megabytes. None is read before it is asked for."""

    def __init__(
        self,
        items: Items,
        size: int,
        max_args_bytes: int,
        check: Callable[[Sequence[Any], Mapping[str, Any]], None] = lambda args, kwargs: None,
    ) -> None:
        self.is_listed = type(items) in (list, tuple)
        """Whether to read the items does nothing else. A generator may write to the database meanwhile."""
        self._source = enumerate(items)
        self._size = size
        self._max_args_bytes = max_args_bytes
        self._check = check
        self._is_read = False
        self._first: list[Encoded] = []

    @cached_property
    def is_single(self) -> bool:
        """Whether the first chunk is all there is; it is read for that."""
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
    """Read all chunks, beyond a few megabytes into a temporary file, and only then give them out: a bad one comes to light first."""
    with SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        for chunk in chunks:
            file.write(json.dumps(chunk).encode())
            file.write(b"\n")
        file.seek(0)
        yield ([Encoded(*pair) for pair in json.loads(line)] for line in file)


class Ids(Sequence[str]):
    """Ids as strings, kept as eight bytes each: a million of them must not take a hundred megabytes."""

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
    """Say whether it is a pair as almost all are; anything else is looked at more closely."""
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
