"""Find the entry of TASKS that a command is about, or explain why it cannot be used."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, DatabaseError, OperationalError, connections
from django.db import Error as AnyDatabaseError
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from djqueue import stores
from djqueue.compat import task_backends
from djqueue.exceptions import ForeignBackend
from djqueue.stores import Store

_INSUFFICIENT_PRIVILEGE = "42501"
_UNDEFINED_TABLE = "42P01"


def store_of(alias: str) -> Store:
    """Return the store of an entry of TASKS."""
    try:
        store = stores.store(alias)
    except ForeignBackend as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        raise CommandError(f"Cannot use the backend {alias!r} of TASKS: {error}") from error
    if problems := [each for each in task_backends[alias].check() if each.is_serious() and not each.is_silenced()]:
        raise CommandError("\n".join(f"{each.obj}: {each.msg}\n  {each.hint}" for each in problems))
    if (database := store.database_of_tables) is not None and (problem := _migrations_problem(database)):
        raise CommandError(problem)
    return store


def database_problem(error: AnyDatabaseError, alias: str | None) -> str:
    """Say in a sentence what the database answered, and what to do where that is known."""
    name, text = alias or DEFAULT_DB_ALIAS, str(error).strip()
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    if sqlstate == _UNDEFINED_TABLE or "no such table" in text:
        return f"A table of djqueue is missing in the database {name!r}: {text}. Run manage.py migrate."
    if connections[name].vendor == "postgresql" and (
        sqlstate == _INSUFFICIENT_PRIVILEGE or isinstance(error, OperationalError)
    ):
        # Imported here: a project with its jobs in Redis may have no psycopg.
        from djqueue.engines.postgres.denials import forbidden, unreachable

        return str((forbidden if sqlstate == _INSUFFICIENT_PRIVILEGE else unreachable)(name, error))
    return f"The database {name!r} refused the statement: {text}"


def _migrations_problem(alias: str) -> str:
    """Say in a sentence that the tables are missing or old; '' if they are not, or if the database does not answer now.

    What is applied is compared with the names of the files. Django's loader would import the migrations of every app into
    a supervisor that lives for months.
    """
    name, _ = MigrationLoader.migrations_module("djqueue")
    if name is None:  # MIGRATION_MODULES says that there are none
        return ""
    wanted = {
        module.name for module in pkgutil.iter_modules(import_module(name).__path__) if module.name[0] not in "_~"
    }
    connection = connections[alias]
    try:
        applied = {
            migration for app, migration in MigrationRecorder(connection).applied_migrations() if app == "djqueue"
        }
        if not applied and "djqueue_worker" in connection.introspection.table_names():
            return ""  # made without migrations, as test runners can
    except DatabaseError:
        return ""  # a worker waits for its database, and every other command says what it misses
    if not (missing := sorted(wanted - applied)):
        return ""
    target = "" if alias == "default" else f" --database {alias}"
    return (
        f"The tables of djqueue are missing or old in the database {alias!r}: {', '.join(missing)} not applied."
        f" Run manage.py migrate{target}."
    )
