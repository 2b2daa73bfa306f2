"""Convert a server's refusal of a login or a command to an error that says what to correct."""

from __future__ import annotations

from redis.exceptions import AuthenticationError, NoPermissionError

from djqueue.engines.redis.nodes import Nodes
from djqueue.exceptions import EngineDenied

_NO_DATABASE = ("DB index is out of range", "invalid DB index", "SELECT is not allowed")
# The message for a command in a script, of Valkey and of Redis.
_NO_PERMISSION = ("ACL failure in script", "user executing the script can't")


def denied_login(error: Exception | None, nodes: Nodes, key: bytes) -> EngineDenied | None:
    """Return the error for a refused login, or None if it was not refused or the refusal may be temporary."""
    text = str(error)
    if isinstance(error, NoPermissionError):
        return _missing_permission(text, nodes, key)
    if isinstance(error, AuthenticationError):
        return _wrong_login(text, nodes)
    if text.startswith(_NO_DATABASE):
        return EngineDenied(
            f"The server at {nodes} has no database {nodes.database}. Use a URL that ends in an existing one: a cluster has only /0,"
            f" others mostly /0 to /15. ({text})"
        )
    return None


def denied_command(text: str, nodes: Nodes, key: bytes) -> EngineDenied | None:
    """Return the error for a command that the user may not run, or None if the response says something else."""
    if text.startswith("NOPERM") or any(words in text for words in _NO_PERMISSION):
        return _missing_permission(text, nodes, key)
    if text.startswith(("NOAUTH", "WRONGPASS")):
        return _wrong_login(text, nodes)
    return None


def _wrong_login(text: str, nodes: Nodes) -> EngineDenied:
    if nodes.has_password:
        return EngineDenied(f"The server at {nodes} rejected the user and password in the URL. ({text})")
    return EngineDenied(
        f"The server at {nodes} requires a password. Add it to the URL: redis://user:password@host:port/0, or"
        f" redis://:password@… without a user. ({text})"
    )


def _missing_permission(text: str, nodes: Nodes, key: bytes) -> EngineDenied:
    return EngineDenied(
        f"The server at {nodes} denies the user {nodes.user!r} a permission that djqueue needs. ({text}) Grant it: ACL SETUSER"
        f" {nodes.user} {needed(key.decode())}"
    )


def needed(key: str) -> str:
    """Return the ACL rules that djqueue's user needs for the keys with this prefix."""
    return f"~{key}* &{key}wake +@all -@dangerous +info +client +config|get +cluster|slots"
