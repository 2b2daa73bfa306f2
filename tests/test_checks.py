from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

from djqueue import InvalidOptions
from tests.app import tasks


def messages(**entry: Any) -> list[CheckMessage]:
    backends = {"default": {"BACKEND": "djqueue.backends.PostgresBackend", "QUEUES": [], **entry}}
    with override_settings(TASKS=backends):
        return [message for message in run_checks() if str(message.id).startswith("djqueue.")]


def test_the_default_options_have_no_problem() -> None:
    assert messages() == []


@pytest.mark.parametrize(
    ("entry", "id", "word"),
    [
        ({"OPTIONS": {"databse": "default"}}, "djqueue.E002", "'databse'"),
        ({"OPTIONS": {"max_attempts": 0}}, "djqueue.E002", "'max_attempts' takes a number from 1"),
        ({"OPTIONS": {"queues": {"a b": {}}}}, "djqueue.E002", "Invalid queue name 'a b'"),
        ({"OPTIONS": {"queues": {"mail": {"concurency": 3}}}}, "djqueue.E002", "concurency"),
        ({"OPTIONS": ["no dict"]}, "djqueue.E002", "dict"),
        ({"OPTIONS": {"database": "other"}}, "djqueue.E003", "'other'"),
        ({"QUEUES": ["default", "two words", 3]}, "djqueue.E005", "'two words'"),
        ({"QUEUES": "mail"}, "djqueue.E005", "list"),
        ({"QUEUES": ["default"], "OPTIONS": {"queues": {"mail": {}}}}, "djqueue.W002", "mail"),
    ],
)
def test_a_mistake_in_tasks_is_told_once_with_an_id_and_a_hint(entry: dict[str, Any], id: str, word: str) -> None:
    [message] = messages(**entry)

    assert message.id == id
    assert word in message.msg
    assert message.hint
    assert message.obj == "TASKS['default']"


def test_another_vendor_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connections

    monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")

    [message] = messages()

    assert message.id == "djqueue.E004"
    assert "PostgreSQL" in message.msg


def test_use_tz_false_is_a_warning() -> None:
    with override_settings(USE_TZ=False):
        [message] = messages()

    assert message.id == "djqueue.W001"


def test_an_app_that_is_not_installed_is_an_error() -> None:
    from djqueue.compat import task_backends

    with override_settings(INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"]):
        [message] = task_backends["default"].check()

    assert message.id == "djqueue.E001"


def test_manage_py_check_ends_with_the_error() -> None:
    backends = {"default": {"BACKEND": "djqueue.backends.PostgresBackend", "OPTIONS": {"max_atempts": 3}}}

    with override_settings(TASKS=backends), pytest.raises(SystemCheckError, match=r"djqueue\.E002") as caught:
        call_command("check", stdout=StringIO(), stderr=StringIO())

    assert str(caught.value).count("djqueue.E002") == 1


def test_wrong_options_do_not_keep_modules_from_being_imported_but_refuse_to_enqueue() -> None:
    backends = {"default": {"BACKEND": "djqueue.backends.PostgresBackend", "OPTIONS": {"max_atempts": 3}}}

    with override_settings(TASKS=backends):
        copy = tasks.add.using(priority=1)

        with pytest.raises(InvalidOptions, match="max_atempts"):
            copy.enqueue(1)
