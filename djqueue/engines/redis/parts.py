"""Split what a verb was given into what one run of a script is given: a server does nothing else meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

LIMIT = 1000
"""So many jobs take a few milliseconds. More than 7,000 values at once would be too many for Lua."""
LIMIT_BYTES = 4_000_000
T = TypeVar("T")


def parts(
    items: Sequence[T], size_of: Callable[[Sequence[T]], int], *, limit: int = LIMIT
) -> Iterator[tuple[int, Sequence[T]]]:
    """Yield the items in parts of up to ``limit``, and a few megabytes by ``size_of``, each with the place of its first."""
    for first in range(0, len(items), limit):
        yield from _halves(first, items[first : first + limit], size_of)


def _halves(first: int, items: Sequence[T], size_of: Callable[[Sequence[T]], int]) -> Iterator[tuple[int, Sequence[T]]]:
    if len(items) > 1 and size_of(items) > LIMIT_BYTES:
        middle = len(items) // 2
        yield from _halves(first, items[:middle], size_of)
        yield from _halves(first + middle, items[middle:], size_of)
    else:
        yield first, items
