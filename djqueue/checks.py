"""System checks of a project's settings, run by ``manage.py check`` and by a starting worker.

``check_backends`` calls ``check()`` of every backend in TASKS, which calls ``check_store``. On Django 5.2 the app
``django_tasks`` does so if it is installed. Importing this module registers the checks: a project without djqueue in
INSTALLED_APPS needs a message too, and it imports this module with the backend in its TASKS.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections

from djqueue import compat, conf, extras, stores
from djqueue.adapters.django import take_over_check
from djqueue.exceptions import EngineDenied, EngineUnavailable, InvalidOptions
from djqueue.jobs.names import is_queue_name
from djqueue.stores import Store

logger = logging.getLogger("djqueue.checks")

_NOT_INSTALLED = "djqueue is not in INSTALLED_APPS, so its tables and commands are missing."
_INSTALL = "Add 'djqueue' to INSTALLED_APPS and run manage.py migrate."
_is_reported = False


def check_store(store: Store) -> list[CheckMessage]:
    """Check one entry of TASKS. Opens no connection."""
    messages: list[CheckMessage] = []
    where = f"TASKS[{store.alias!r}]"
    queues = store.declared_queues
    if not apps.is_installed("djqueue"):
        messages.append(
            Error(
                _NOT_INSTALLED,
                hint=_INSTALL,
                obj=where,
                id="djqueue.E001",
            )
        )
    if not isinstance(queues, list | tuple | set | frozenset):
        messages.append(
            Error(
                f"Invalid QUEUES {queues!r}: use a list of names.",
                hint=f"Write {where}['QUEUES'] = ['default'], or [] to allow every name.",
                obj=where,
                id="djqueue.E005",
            )
        )
        queues = []
    try:
        parsed = store.settings
    except InvalidOptions as error:
        messages.append(Error(str(error), hint=f"Correct {where}['OPTIONS'].", obj=where, id="djqueue.E002"))
    else:
        if isinstance(parsed, conf.PostgresOptions):
            messages += _check_database(where, parsed.database) or _check_vendor(where, parsed.database)
        elif isinstance(parsed, conf.RedisOptions):
            messages += _check_database(where, parsed.database) + _check_packages(where)
        messages += _check_unused_rules(where, queues, parsed.queues)
    if wrong := sorted(repr(name) for name in queues if not is_queue_name(name)):
        messages.append(
            Error(
                f"Invalid queue names: {', '.join(wrong)}.",
                hint=f"Use 1–128 letters, digits, '_', '.', ':' or '-' for each name in {where}['QUEUES'].",
                obj=where,
                id="djqueue.E005",
            )
        )
    if not settings.USE_TZ:
        messages.append(
            Warning(
                "USE_TZ is False: processes with different TIME_ZONE read a time without a time zone differently, and in one"
                " hour of the year it is ambiguous.",
                hint="Set USE_TZ = True, or give run_after as a timedelta.",
                obj=where,
                id="djqueue.W001",
            )
        )
    return messages


def report_missing_app(alias: str) -> None:
    """Log that djqueue is not installed, once per process.

    A system check would be too late: ``manage.py check`` may import a project's tasks with its URLs, after it has collected
    the checks to run.
    """
    global _is_reported
    if not _is_reported and apps.ready and not apps.is_installed("djqueue"):
        _is_reported = True
        logger.error("TASKS[%r]: (djqueue.E001) %s %s", alias, _NOT_INSTALLED, _INSTALL)


@register
def check_backends(app_configs: object = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Check every backend in TASKS in place of the framework, whose check raises if a backend cannot be imported."""
    if compat.FRAMEWORK == "django_tasks" and apps.is_installed("django_tasks"):
        return
    for alias in compat.task_backends:
        try:
            backend = compat.task_backends[alias]
        except compat.InvalidTaskBackend as error:
            yield Error(
                f"The backend {alias!r} cannot be used: {error}",
                hint=f"Correct TASKS[{alias!r}]['BACKEND'], or install the package that it needs.",
                obj=f"TASKS[{alias!r}]",
                id="djqueue.E008",
            )
        else:
            yield from backend.check()


if compat.FRAMEWORK == "django.tasks":
    take_over_check(import_module("django.tasks.checks").check_tasks)


@register(Tags.database)
def check_servers(
    app_configs: object = None, databases: Collection[str] | None = None, **kwargs: Any
) -> Iterable[CheckMessage]:
    """Check the server of every backend: with ``check --database`` and ``migrate``, as Django's own checks of databases."""
    for alias in compat.task_backends if databases else ():
        where = f"TASKS[{alias!r}]"
        try:
            store = stores.find(alias)
            if store is None or any(each.is_serious() for each in compat.task_backends[alias].check()):
                continue  # its errors are already reported
            with store.engine.open_registrar() as registrar:
                concerns = registrar.inspect().concerns
        except compat.InvalidTaskBackend:
            continue
        except EngineUnavailable as error:
            database = None if store is None else store.database_of_tables
            address = f"{where}['OPTIONS']['url']" if database is None else f"DATABASES[{database!r}]"
            yield Warning(
                f"{error}",
                hint=f"Correct the user, the password or the permissions in {address}. Workers do not start until then."
                if isinstance(error, EngineDenied)
                else f"Start the server, or correct its address in {address}. Workers run no jobs until it answers.",
                obj=where,
                id="djqueue.W009",
            )
            continue
        for concern in concerns:
            kind = Error if ".E" in concern.id else Warning
            yield kind(concern.text, hint=concern.hint, obj=where, id=concern.id)


def _check_database(where: str, database: str) -> list[CheckMessage]:
    if database not in connections.settings:
        return [
            Error(
                f"The database {database!r} is not defined in DATABASES.",
                hint=f"Set {where}['OPTIONS']['database'] to one of: {', '.join(sorted(connections.settings))}.",
                obj=where,
                id="djqueue.E003",
            )
        ]
    return []


def _check_vendor(where: str, database: str) -> list[CheckMessage]:
    if (vendor := connections[database].vendor) == "postgresql":
        return []
    return [
        Error(
            f"The database {database!r} is {vendor}; djqueue needs PostgreSQL.",
            hint=f"Set {where}['OPTIONS']['database'] to a PostgreSQL database in DATABASES, or use"
            " djqueue.backends.RedisBackend, which works with any database.",
            obj=where,
            id="djqueue.E004",
        )
    ]


def _check_packages(where: str) -> list[CheckMessage]:
    if not (missing := [name for name in ("redis", "msgpack") if find_spec(name) is None]):
        return []
    return [
        Error(
            f"RedisBackend needs the package{'s' if len(missing) > 1 else ''} {' and '.join(missing)}.",
            hint=f"Install what it needs: {extras.install('redis')}",
            obj=where,
            id="djqueue.E006",
        )
    ]


def _check_unused_rules(where: str, queues: Collection[Any], rules: Mapping[str, object]) -> list[CheckMessage]:
    unused = sorted(set(rules) - set(queues)) if queues else []
    if not unused:
        return []
    return [
        Warning(
            f"OPTIONS['queues'] has rules for queues that are not in QUEUES: {', '.join(unused)}.",
            hint=f"Add them to {where}['QUEUES'], or remove their rules: jobs cannot be enqueued to them.",
            obj=where,
            id="djqueue.W002",
        )
    ]
