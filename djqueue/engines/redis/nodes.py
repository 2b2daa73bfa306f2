"""Find the server of one URL: a single one, or the cluster node that currently has the keys of the prefix."""

from __future__ import annotations

from typing import Any

from redis.connection import AbstractConnection, Connection, parse_url

CONNECT_TIMEOUT_SECONDS = 5.0
Address = tuple[str, int]


class Nodes:
    """The connection settings and known addresses, shared by all connections of an engine. Thread-safe."""

    def __init__(self, url: str) -> None:
        options = parse_url(url)
        self._kind: type[AbstractConnection] = options.pop("connection_class", Connection)
        options.pop("protocol", None)
        self.path: str | None = options.get("path")
        """The path of the Unix socket, for a server without a network address."""
        self._first: Address = options.pop("host", "localhost"), options.pop("port", 6379)
        self._options: dict[str, Any] = {"socket_connect_timeout": CONNECT_TIMEOUT_SECONDS, **options}
        self._home: Address | None = None
        """The node that has the keys, according to the last information."""
        self._others: tuple[Address, ...] = ()
        """Other nodes of the cluster, to ask if that node is gone."""
        self.is_known = False
        """Whether the list of nodes has been read. It is outdated when a node redirects to another one."""

    def __str__(self) -> str:
        return self.path or "{}:{}".format(*self.home)

    @property
    def address(self) -> str:
        """Return an address that is the same for all URLs that lead to the same keys, regardless of user and password."""
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
        """Create a connection to a node, without connecting it yet."""
        where: dict[str, Any] = {} if self.path else {"host": home[0], "port": home[1]}
        return self._kind(**self._options, **where, **options)

    def candidates(self) -> list[Address]:
        """Return the addresses to try, best first. Any node of a cluster can redirect to the right one."""
        return list(dict.fromkeys([self.home, self._first, *self._others]))

    def move(self, node: str) -> None:
        """Use the node to which another one has redirected."""
        host, _, port = node.rpartition(":")
        self._home = (host or self.home[0], int(port))  # empty: the same host
        self.is_known = False

    def learn(self, slots: Any) -> None:
        """Store the nodes of a cluster from its response to ``CLUSTER SLOTS``; ignore the error of a server without a cluster."""
        self.is_known = True
        if isinstance(slots, list):
            found = {
                (host.decode() if host else self.home[0], int(port)): None
                for _, _, *nodes in slots
                for host, port, *_ in nodes
            }
            self._others = tuple(found)
