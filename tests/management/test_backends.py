from __future__ import annotations

from typing import Any

import pytest
from django.core.management import load_command_class
from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from djqueue.management.backends import store_of

pytestmark = pytest.mark.django_db


def backend_with(**entry: Any) -> Any:
    with override_settings(TASKS={"default": {"BACKEND": "djqueue.backends.PostgresBackend", **entry}}):
        return store_of("default")


def test_a_backend_without_problems_is_returned() -> None:
    assert backend_with(QUEUES=["mail"]).queues == {"mail"}


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"OPTIONS": {"queues": {"mail": 20}}}, "Invalid rules of queue 'mail' 20: use a dict"),
        ({"OPTIONS": {"database": "other"}}, "The database 'other' is not defined in DATABASES"),
        ({"QUEUES": "mail"}, "Invalid QUEUES 'mail': use a list of names"),
    ],
)
def test_what_the_system_checks_find_stops_a_command_with_its_hint(entry: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CommandError, match=rf"TASKS\['default'\]: {sentence}.*\n  \S"):
        backend_with(**entry)


def test_a_database_of_another_vendor_stops_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")

    with pytest.raises(CommandError, match="is sqlite; djqueue needs PostgreSQL"):
        backend_with()


def test_a_silenced_check_stops_nothing() -> None:
    with override_settings(SILENCED_SYSTEM_CHECKS=["djqueue.E005"]):
        backend_with(QUEUES="mail")


def test_a_migration_that_was_not_applied_stops_a_command() -> None:
    migrations = MigrationRecorder(connections["default"]).migration_qs.filter(app="djqueue")
    migrations.filter(name="0001_initial").update(name="0000_before")

    with pytest.raises(CommandError, match=r"'default': 0001_initial not applied\. Run manage\.py migrate\.$"):
        backend_with()


def test_tables_made_without_migrations_are_accepted() -> None:
    MigrationRecorder(connections["default"]).migration_qs.filter(app="djqueue").delete()

    backend_with()


def test_missing_tables_stop_a_command() -> None:
    MigrationRecorder(connections["default"]).migration_qs.filter(app="djqueue").delete()
    with connections["default"].cursor() as cursor:
        cursor.execute("ALTER TABLE djqueue_worker RENAME TO elsewhere")

    with pytest.raises(CommandError, match=r"0001_initial.* not applied\. Run manage\.py migrate\."):
        backend_with()


@pytest.mark.parametrize("words", [["cron", "list"], ["queuectl", "pause", "mail"]])
def test_t41_backend_may_stand_before_the_verb_and_after_it(words: list[str]) -> None:
    command, *verb = words
    parser = load_command_class("djqueue", command).create_parser("manage.py", command)

    assert parser.parse_args(["--backend", "other", *verb]).backend == "other"
    assert parser.parse_args([*verb, "--backend", "other"]).backend == "other"
    assert parser.parse_args(verb).backend == "default"
