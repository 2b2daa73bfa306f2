"""The connections of the application: one per thread, on which its verbs run."""

from __future__ import annotations

import threading

from djqueue.engines.redis.client import ANSWER_TIMEOUT_SECONDS, Client
from djqueue.engines.redis.nodes import Nodes


class Application:
    """The base class of the roles that run on the application's connections."""

    def __init__(
        self, url: str, prefix: str = "djqueue", *, answer_timeout_seconds: float = ANSWER_TIMEOUT_SECONDS
    ) -> None:
        self.url = url
        self.prefix = prefix
        self.nodes = Nodes(url)
        self.answer_timeout = answer_timeout_seconds
        self._local = threading.local()

    @property
    def client(self) -> Client:
        """The connection of this thread."""
        try:
            client: Client = self._local.client
        except AttributeError:
            client = self._local.client = self.open_client("djqueue")
        return client

    def close(self) -> None:
        """Close the connection of this thread. Idempotent."""
        self.client.close()

    def open_client(self, name: str) -> Client:
        return Client(self.nodes, self.prefix, name=name, answer_timeout_seconds=self.answer_timeout)
