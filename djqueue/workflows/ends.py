"""The jobs in which a chain or a group ends: the place of one job, or for a group a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Ends = int | Sequence["Ends"]


def flat(ends: Ends) -> Iterator[int]:
    """Yield all places in order."""
    if isinstance(ends, int):
        yield ends
    else:
        for each in ends:
            yield from flat(each)


def shape(ends: Sequence[Ends]) -> list[Any]:
    """Return the nesting of a list of results: None for one result, a list for a list."""
    return [None if isinstance(each, int) else shape(each) for each in ends]
