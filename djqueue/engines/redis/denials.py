"""What a server answers that does not let us in, or do too little there, told as what to correct."""

from __future__ import annotations

from redis.exceptions import AuthenticationError, NoPermissionError

from djqueue.engines.redis.nodes import Nodes
from djqueue.exceptions import EngineDenied

_NO_DATABASE = ("DB index is out of range", "invalid DB index", "SELECT is not allowed")
# Of a command in a script, in the words of Valkey and of Redis.
_NO_PERMISSION = ("ACL failure in script", "user executing the script can't")


def denied_login(error: Exception | None, nodes: Nodes, key: bytes) -> EngineDenied | None:
    """Return what to raise when a server refuses a connection; None: it is no refusal, or one that may pass."""
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
    """Return what to raise for the answer to a command; None: it says something else."""
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
    """Return the rules that a user of the server needs for the keys that begin with this one."""
    return f"~{key}* &{key}wake +@all -@dangerous +info +client +config|get +cluster|slots"
