"""Undocumented parts of Django's database layer, on any database."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from types import FunctionType
from typing import Any

from django.core.checks.registry import registry
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import QuerySet

CommitHook = tuple[set[str], Callable[[], object], bool]

commit_hooks: Callable[[BaseDatabaseWrapper], list[CommitHook]] = attrgetter("run_on_commit")
"""Return the ``on_commit`` callbacks of the open transaction, in order: each with the savepoints it belongs to. Not a copy."""


def is_registered(connection: BaseDatabaseWrapper, hook: object, place: int) -> bool:
    """Return whether an ``on_commit`` callback is still at the position at which it was registered.

    Django removes callbacks with their savepoint and clears them at the end of a transaction. Checking one position instead of
    searching the list keeps ten thousand enqueues linear if the application has ten thousand callbacks too.
    """
    hooks = commit_hooks(connection)
    return place < len(hooks) and hooks[place][1] is hook


savepoints: Callable[[BaseDatabaseWrapper], list[str]] = attrgetter("savepoint_ids")
"""Return the names of the open savepoints, outermost first. Not a copy."""

_CURSOR_FILE = CursorWrapper.__init__.__code__.co_filename


def is_watched(connection: BaseDatabaseWrapper) -> bool:
    """Return whether something observes the statements of Django's cursors: the query log, a wrapper, a replaced method."""
    execute = CursorWrapper.execute
    return bool(
        connection.queries_logged
        or connection.execute_wrappers
        or getattr(connection.cursor, "__func__", None) is not BaseDatabaseWrapper.cursor
        or type(execute) is not FunctionType
        or execute.__code__.co_filename != _CURSOR_FILE
    )


def is_opened_by_django(connection: BaseDatabaseWrapper) -> bool:
    """Return whether Django's own methods open and close the session; those of a project may do anything."""
    kind = type(connection)
    return all(
        getattr(getattr(kind, name, None), "__module__", "").startswith("django.")
        for name in ("get_new_connection", "_close")
    )


def forget_transaction(connection: BaseDatabaseWrapper) -> None:
    """Reset what Django knows of an open transaction, so that the connection can be closed and opened again."""
    connection.in_atomic_block = False
    connection.closed_in_transaction = False
    connection.needs_rollback = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.run_on_commit = []


def atomic_depth(connection: BaseDatabaseWrapper) -> int:
    """Return how many ``atomic()`` blocks are open."""
    return len(connection.atomic_blocks)


def keep_outermost_block(connection: BaseDatabaseWrapper) -> None:
    """Drop the inner ``atomic()`` blocks, so that the end of the outermost one ends the transaction."""
    del connection.atomic_blocks[1:]
    connection.savepoint_ids.clear()


def take_connection_pools() -> object:
    """Make Django forget its connection pools and return them. None without Django's backend for PostgreSQL."""
    module = sys.modules.get("django.db.backends.postgresql.base")
    if module is None:
        return None
    pools: object = module.DatabaseWrapper._connection_pools
    module.DatabaseWrapper._connection_pools = {}
    return pools


def delete_rows(rows: QuerySet[Any], alias: str) -> None:
    """Delete in one statement. ``delete()`` reads the rows first if any receiver is connected to a deletion signal."""
    rows._raw_delete(alias)


def take_over_check(check: Callable[..., object]) -> None:
    """Remove a registered system check, so that djqueue can run what it does."""
    registry.registered_checks.discard(check)


def loaded_settings(settings: Any) -> Any:
    """Return the object behind ``django.conf.settings``, which has to be set up."""
    return settings._wrapped
