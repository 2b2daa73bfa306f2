"""The base class of the roles that use a connection of their own."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from djqueue.engines.closing import Closing
from djqueue.engines.redis.client import Client
from djqueue.engines.redis.listener import RedisListener


class Session(Closing):
    def __init__(self, client: Client) -> None:
        self._client = client

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
