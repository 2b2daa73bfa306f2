"""What a PostgreSQL server answers that does not let us in, told apart from a server that is away.

libpq passes on the text of a refused connection and no SQLSTATE, so the words decide. A server that speaks another language is
taken for one that is away: the worker waits for it and says what the server said.
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
    "SASL authentication failed",  # of a pooler
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
    """Return what to raise when a connection cannot be opened: ``EngineDenied`` if that will not change by itself."""
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
    """Return what to raise when the server refuses a statement, or a role, to a user that it has let in."""
    return EngineDenied(
        f"The database {alias!r} denies djqueue a permission: {str(error).strip()}. Grant its user SELECT, INSERT, UPDATE and"
        " DELETE on all tables whose names begin with djqueue_, or name a role that has these rights in"
        f" DATABASES[{alias!r}]['OPTIONS']['assume_role']."
    )
