"""The base class of the roles that use a connection of their own."""

from __future__ import annotations

from collections.abc import Collection
from types import TracebackType
from typing import Self
from uuid import UUID

from djqueue.engines.redis.client import Client
from djqueue.engines.redis.listener import RedisListener


class Session:
    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def open_listener(self) -> RedisListener:
        return RedisListener(self._client.nodes, self._client.prefix)

    def wake(self, queues: Collection[str]) -> None:
        if queues:
            self._client.run("wake", *sorted(queues))


def name_of(worker: UUID) -> str:
    """Return the name of the connection on which a worker fetches; see ``Maintainer.disconnect``."""
    return f"djqueue:{worker}"
