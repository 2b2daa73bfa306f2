"""Distinguish a PostgreSQL server that denies access from one that is unavailable.

For a refused connection libpq returns the server's message but no SQLSTATE, so the text decides. A server whose messages
are in another language counts as unavailable: the worker retries and logs what the server said.
"""

from __future__ import annotations

from djqueue.exceptions import EngineDenied, EngineUnavailable

_LOGIN = (
    "password authentication failed for user",
    "authentication failed for user",
    "no password supplied",
    "no pg_hba.conf entry for",
    "pg_hba.conf rejects connection",
    "is not permitted to log in",
    "SASL authentication failed",  # sent by a pooler
    "no such user",
)
_DATABASE = ("permission denied for database", "no such database")
_NOT_THERE = "does not exist"
_TLS = (
    "server does not support SSL",
    "certificate verify failed",
    "SSL error: ",
    "connection requires a valid client certificate",
)


def unreachable(alias: str, error: BaseException) -> EngineUnavailable:
    """Return the error for a connection that cannot be opened: ``EngineDenied`` if retrying will not help."""
    text = str(error).strip()
    where = f"DATABASES[{alias!r}]"
    if any(words in text for words in _LOGIN) or ("role " in text and _NOT_THERE in text):
        return EngineDenied(f"The database server of {where} rejected the user and password. ({text})")
    if any(words in text for words in _DATABASE) or ("database " in text and _NOT_THERE in text):
        return EngineDenied(f"The database in {where} does not exist, or its user may not connect to it. ({text})")
    if any(words in text for words in _TLS):
        return EngineDenied(f"The database server of {where} and its OPTIONS disagree about TLS. ({text})")
    return EngineUnavailable(f"The database {alias!r} cannot be reached: {text}")


def forbidden(alias: str, error: BaseException) -> EngineDenied:
    """Return the error for a user who may connect but may not run a statement or assume a role."""
    return EngineDenied(
        f"The database {alias!r} denies djqueue a permission: {str(error).strip()}. Grant its user SELECT, INSERT, UPDATE and"
        " DELETE on all tables whose names begin with djqueue_, or name a role that has these rights in"
        f" DATABASES[{alias!r}]['OPTIONS']['assume_role']."
    )
