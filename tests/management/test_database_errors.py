"""What the commands say when the database does not answer, or refuses."""

from __future__ import annotations

from io import StringIO
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError

from djqueue.management.backends import database_problem

pytestmark = pytest.mark.django_db


class _Forbidden(Exception):
    sqlstate = "42501"


def forbidden() -> ProgrammingError:
    error = ProgrammingError("permission denied for table djqueue_cronentry")
    error.__cause__ = _Forbidden()
    return error


@pytest.mark.parametrize("error", [forbidden(), OperationalError("connection refused"), InterfaceError("gone")])
@pytest.mark.parametrize("args", [("list",), ("show", "x"), ("pause", "x"), ("remove", "x")])
def test_cron_says_in_a_sentence_what_the_database_refused(args: tuple[str, ...], error: Exception) -> None:
    names = ("entries", "get", "pause", "remove")
    with mock.patch.multiple("djqueue.crontab", **{name: mock.Mock(side_effect=error) for name in names}):
        with pytest.raises(CommandError, match=str(error)):
            call_command("cron", *args, stdout=StringIO())


def test_missing_rights_are_told_apart_from_a_database_that_is_away() -> None:
    assert "Grant its user SELECT, INSERT" in database_problem(forbidden(), "default")
    assert database_problem(OperationalError("connection refused\n"), "default") == (
        "The database 'default' cannot be reached: connection refused"
    )
    assert "rejected the user and password" in database_problem(
        OperationalError('FATAL:  password authentication failed for user "anna"'), "default"
    )
    assert database_problem(DatabaseError("no partition"), "default") == (
        "The database 'default' refused the statement: no partition"
    )


@pytest.mark.parametrize("command", ["queuestats", "queuehealth"])
def test_a_status_command_names_the_missing_rights(command: str) -> None:
    out = StringIO()
    with mock.patch("djqueue.engines.postgres.PostgresEngine.queues", side_effect=forbidden()):
        with mock.patch("djqueue.engines.postgres.PostgresEngine.health", side_effect=forbidden()):
            with pytest.raises((CommandError, SystemExit)) as caught:
                call_command(command, stdout=out)

    assert "Grant its user SELECT, INSERT" in f"{caught.value}{out.getvalue()}"
