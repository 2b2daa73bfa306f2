from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from unittest import mock

import pytest
from django.apps import apps
from django.test import override_settings

from djqueue import UnknownTask
from djqueue.tasks import registry
from djqueue.tasks.task import KNOWN, Task
from tests.app import tasks


@pytest.fixture
def make_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes an app with a tasks module; everything is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_failed", {})
    made: list[str] = []

    def make(name: str, source: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "tasks.py").write_text(source)
        importlib.invalidate_caches()
        made.append(name)
        return name

    with mock.patch.dict(KNOWN):
        yield make
    for module in [m for m in sys.modules if m.partition(".")[0] in made]:
        del sys.modules[module]


def test_a_task_is_found_by_its_module_path() -> None:
    assert registry.find("tests.app.tasks.add") is tasks.add


def test_a_copy_does_not_take_the_place_of_the_original() -> None:
    tasks.add.using(priority=50)

    assert registry.find("tests.app.tasks.add") is tasks.add


def test_a_reloaded_module_takes_the_place_of_its_former_tasks(make_app) -> None:
    name = make_app("reloaded_app", "from djqueue import task\n@task\ndef hello(): pass\n")
    module = importlib.import_module(f"{name}.tasks")
    before = module.hello

    importlib.reload(module)

    assert registry.find("reloaded_app.tasks.hello") is module.hello
    assert module.hello is not before


def test_an_unknown_task_is_told_in_a_sentence_with_the_nearest_name() -> None:
    with pytest.raises(UnknownTask, match=r"No task named 'tests.app.tasks.send_mial'.*INSTALLED_APPS.*send_mail"):
        registry.find("tests.app.tasks.send_mial")


@pytest.mark.parametrize("name", ["os.system", "tests.app.tasks", "tests.app.tasks.calls", "", "antigravity.x"])
def test_a_name_that_is_no_task_imports_nothing(name: str) -> None:
    registry.autodiscover_once()
    before = set(sys.modules)

    with pytest.raises(UnknownTask):
        registry.find(name)

    assert set(sys.modules) == before


def test_autodiscover_imports_the_tasks_of_installed_apps(make_app) -> None:
    name = make_app("found_app", "from djqueue import task\n@task\ndef hello(): pass\n")

    with override_settings(INSTALLED_APPS=[*(c.name for c in apps.get_app_configs()), name]):
        failed = registry.autodiscover()

    assert failed == {}
    assert isinstance(registry.find("found_app.tasks.hello"), Task)


@pytest.mark.parametrize("source", ["1 / 0", "import no_such_module", "raise SystemExit(1)", "syntax error here"])
def test_a_tasks_module_that_fails_does_not_keep_others_from_being_found(
    make_app, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = make_app("broken_app", source)
    sound = make_app("sound_app", "from djqueue import task\n@task\ndef hello(): pass\n")

    with (
        caplog.at_level(logging.ERROR, "djqueue"),
        override_settings(INSTALLED_APPS=[*(c.name for c in apps.get_app_configs()), broken, sound]),
    ):
        failed = registry.autodiscover()

        assert list(failed) == ["broken_app.tasks"]
        assert registry.find("sound_app.tasks.hello")
        assert "Traceback" in caplog.text
        with pytest.raises(UnknownTask, match=r"broken_app\.tasks could not be imported"):
            registry.find("broken_app.tasks.hello")


def test_the_first_unknown_name_looks_into_the_installed_apps(make_app, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make_app("late_app", "from djqueue import task\n@task\ndef hello(): pass\n")
    monkeypatch.setattr(registry, "_is_discovered", False)

    with override_settings(INSTALLED_APPS=[*(c.name for c in apps.get_app_configs()), name]):
        assert registry.find("late_app.tasks.hello")


FOREIGN = """
from djqueue import compat
import importlib
task = importlib.import_module(compat.FRAMEWORK).task

@task(backend="immediate")
def hello(): pass
"""


def test_tasks_of_other_backends_are_known_because_using_may_send_them_here(make_app) -> None:
    name = make_app("foreign_app", FOREIGN)
    backends = {
        "default": {"BACKEND": "djqueue.backends.PostgresBackend"},
        "immediate": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"},
    }
    from djqueue.compat import FRAMEWORK

    backends["immediate"]["BACKEND"] = f"{FRAMEWORK}.backends.immediate.ImmediateBackend"
    with override_settings(TASKS=backends, INSTALLED_APPS=[*(c.name for c in apps.get_app_configs()), name]):
        registry.autodiscover()

        assert isinstance(registry.find("foreign_app.tasks.hello"), Task)


def test_the_error_for_an_unknown_task_suggests_a_similar_name() -> None:
    name = next(iter(registry.known()))

    with pytest.raises(UnknownTask, match=rf"Did you mean '{name}'\?$"):
        registry.find(f"{name}x")
