"""Split the input of a verb into parts for one script each: the server does nothing else while a script runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

LIMIT = 1000
"""A script takes a few milliseconds for this many jobs. Lua cannot unpack more than about 7,000 values at once."""
LIMIT_BYTES = 4_000_000
T = TypeVar("T")


def parts(
    items: Sequence[T], size_of: Callable[[Sequence[T]], int], *, limit: int = LIMIT
) -> Iterator[tuple[int, Sequence[T]]]:
    """Yield parts of up to ``limit`` items and a few megabytes by ``size_of``, each with the index of its first item."""
    for first in range(0, len(items), limit):
        yield from _halves(first, items[first : first + limit], size_of)


def _halves(first: int, items: Sequence[T], size_of: Callable[[Sequence[T]], int]) -> Iterator[tuple[int, Sequence[T]]]:
    if len(items) > 1 and size_of(items) > LIMIT_BYTES:
        middle = len(items) // 2
        yield from _halves(first, items[:middle], size_of)
        yield from _halves(first + middle, items[middle:], size_of)
    else:
        yield first, items
