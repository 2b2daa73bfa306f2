from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

import djqueue
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
        ({"OPTIONS": {"max_attempts": 0}}, "djqueue.E002", "Invalid 'max_attempts' 0: use a number from 1"),
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


_PROJECT = {
    "settings.py": """
SECRET_KEY = "x"
INSTALLED_APPS = ["shop.apps.ShopConfig"]
USE_TZ = True
ROOT_URLCONF = "shop.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.%(engine)s", "NAME": "x"}}
TASKS = {"default": {"BACKEND": "djqueue.backends.%(backend)s"}}
""",
    "shop/__init__.py": "",
    "shop/tasks.py": "from djqueue import task\n\n@task\ndef pay(): ...\n",
    "shop/urls.py": "%(urls)s\nurlpatterns = []\n",
    "shop/apps.py": """
from django.apps import AppConfig

class ShopConfig(AppConfig):
    name = "shop"

    def ready(self):
        %(ready)s
""",
}


def _check_project(directory: Path, **values: str) -> subprocess.CompletedProcess[str]:
    """Run ``manage.py check`` of a project that does not have djqueue in INSTALLED_APPS."""
    for name, text in _PROJECT.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text % {"urls": "", "ready": "pass", **values})
    path = os.pathsep.join([str(directory), str(Path(djqueue.__file__).parent.parent)])
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-m", "django", "check"], env=env, capture_output=True, text=True, check=False
    )


KINDS = [("sqlite3", "RedisBackend"), ("postgresql", "PostgresBackend")]


@pytest.mark.parametrize(("engine", "backend"), KINDS)
def test_t28_the_check_is_found_though_the_app_is_missing(tmp_path: Path, engine: str, backend: str) -> None:
    done = _check_project(tmp_path, engine=engine, backend=backend, ready="from shop import tasks")

    assert done.returncode == 1, done.stderr
    assert done.stderr.count("(djqueue.E001) djqueue is not in INSTALLED_APPS") == 1


@pytest.mark.parametrize(("engine", "backend"), KINDS)
def test_t28_it_is_told_though_the_tasks_are_imported_while_the_checks_run(
    tmp_path: Path, engine: str, backend: str
) -> None:
    done = _check_project(tmp_path, engine=engine, backend=backend, urls="from shop import tasks")

    assert "(djqueue.E001) djqueue is not in INSTALLED_APPS" in done.stderr
    assert "Add 'djqueue' to INSTALLED_APPS" in done.stderr


def test_a_backend_that_cannot_be_imported_is_an_error_beside_those_of_the_others() -> None:
    default = {"BACKEND": "djqueue.backends.PostgresBackend", "OPTIONS": {"max_atempts": 3}}
    with override_settings(TASKS={"default": default, "other": {"BACKEND": "djqueue.backends.PostgrsBackend"}}):
        found = {message.id: message for message in run_checks() if str(message.id).startswith("djqueue.")}

    assert set(found) == {"djqueue.E002", "djqueue.E008"}
    message = found["djqueue.E008"]
    assert "'other'" in message.msg
    assert "PostgrsBackend" in message.msg
    assert (message.obj, bool(message.hint)) == ("TASKS['other']", True)


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
