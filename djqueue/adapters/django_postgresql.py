"""Undocumented parts of Django's backend for PostgreSQL."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql import base

_CURSORS: tuple[object, ...] = (base.Cursor, base.ServerBindingCursor)
_MAKE_CURSOR = BaseDatabaseWrapper.make_cursor
_CREATE_CURSOR = base.DatabaseWrapper.create_cursor
"""As at import: tracing packages replace the method of the class."""


def has_plain_cursors(connection: BaseDatabaseWrapper) -> bool:
    """Return whether an open connection makes Django's own cursors, of which no class or method was replaced."""
    return (
        type(connection).make_cursor is _MAKE_CURSOR
        and type(connection).create_cursor is _CREATE_CURSOR
        and connection.connection.cursor_factory in _CURSORS
    )
