"""Undocumented parts of redis-py."""

from __future__ import annotations

import socket

from redis.connection import AbstractConnection


def socket_of(connection: AbstractConnection) -> socket.socket:
    """Return the socket of an open connection, TLS included."""
    opened: socket.socket = connection._sock  # type: ignore[assignment]  # None only before connect()
    return opened
