"""What all roles with a connection of their own have in common."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self


class Session(Protocol):
    """A connection of its own, for one thread. It connects with its first verb, and again after a loss."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def close(self) -> None:
        """Close the connection. Idempotent."""
