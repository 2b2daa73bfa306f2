"""Where the servers of one url are: one, or the nodes of a cluster, of which one has the keys of our prefix at a time."""

from __future__ import annotations

from typing import Any

from redis.connection import AbstractConnection, Connection, parse_url

CONNECT_TIMEOUT_SECONDS = 5.0
Address = tuple[str, int]


class Nodes:
    """How to connect, and where to: what all connections of an engine have in common. Safe to use from any thread."""

    def __init__(self, url: str) -> None:
        options = parse_url(url)
        self._kind: type[AbstractConnection] = options.pop("connection_class", Connection)
        options.pop("protocol", None)
        self.path: str | None = options.get("path")
        """The socket in the file system, for a server that has no other address."""
        self._first: Address = options.pop("host", "localhost"), options.pop("port", 6379)
        self._options: dict[str, Any] = {"socket_connect_timeout": CONNECT_TIMEOUT_SECONDS, **options}
        self._home: Address | None = None
        """The node that has the keys, as far as is known."""
        self._others: tuple[Address, ...] = ()
        """Nodes of the cluster that may know better, should it be gone."""
        self.is_known = False
        """Whether somebody has asked about those. What they said is out of date when one of them sends us elsewhere."""

    def __str__(self) -> str:
        return self.path or "{}:{}".format(*self.home)

    @property
    def address(self) -> str:
        """Name the place: what leads to the same keys has the same name, whoever logs in there and however."""
        return (
            f"unix:{self.path}/{self.database}" if self.path else "redis:{}:{}/{}".format(*self._first, self.database)
        )

    @property
    def database(self) -> int:
        return int(self._options.get("db") or 0)

    @property
    def user(self) -> str:
        return str(self._options.get("username") or "default")

    @property
    def has_password(self) -> bool:
        return bool(self._options.get("password"))

    @property
    def home(self) -> Address:
        return self._home or self._first

    def connection(self, home: Address, **options: Any) -> AbstractConnection:
        """Make a connection to a node; it is not connected yet."""
        where: dict[str, Any] = {} if self.path else {"host": home[0], "port": home[1]}
        return self._kind(**self._options, **where, **options)

    def candidates(self) -> list[Address]:
        """Return whom to ask, best first: any node of a cluster says where to go."""
        return list(dict.fromkeys([self.home, self._first, *self._others]))

    def move(self, node: str) -> None:
        """Go to the node that another one has named."""
        host, _, port = node.rpartition(":")
        self._home = (host or self.home[0], int(port))  # none: on the host that was asked
        self.is_known = False

    def learn(self, slots: Any) -> None:
        """Remember the nodes of a cluster, from its answer to ``CLUSTER SLOTS``; an error, of a server that is none, says nothing."""
        self.is_known = True
        if isinstance(slots, list):
            found = {
                (host.decode() if host else self.home[0], int(port)): None
                for _, _, *nodes in slots
                for host, port, *_ in nodes
            }
            self._others = tuple(found)
