"""Which tasks this process knows, by name.

A row names a task; here is the only place where that name becomes a function. Looking up never imports what
a row says: a task is known once its module was imported by the project, or by ``autodiscover``, which
imports the ``tasks`` modules of INSTALLED_APPS and nothing else.
"""

from __future__ import annotations

import logging
import threading
from difflib import get_close_matches
from importlib import import_module

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from djqueue import compat, hooks
from djqueue.exceptions import UnknownTask
from djqueue.tasks.task import FORMER_NAMES, KNOWN, Task

logger = logging.getLogger("djqueue.registry")

_failed: dict[str, str] = {}
_discovery = threading.RLock()
_is_discovered = False


def known() -> dict[str, Task]:
    """Return the tasks of this process by name. A copy."""
    return dict(KNOWN)


def find(name: str) -> Task:
    """Return the task of this name; raise ``UnknownTask`` if there is none.

    The first name that is not known starts ``autodiscover``, so that a web process which never imported an
    app's tasks can read their results.
    """
    task = KNOWN.get(name) or FORMER_NAMES.get(name)
    if task is None and apps.ready and not _is_discovered:
        autodiscover()
        task = KNOWN.get(name) or FORMER_NAMES.get(name)
    if task is None:
        raise UnknownTask(_sentence(name))
    return task


def autodiscover() -> dict[str, str]:
    """Import the ``tasks`` modules of all installed apps; return those that failed, with the error.

    One broken module must not keep the tasks of all other apps from running: it is logged with its traceback.
    """
    global _is_discovered
    with _discovery:
        _failed.clear()
        for config in apps.get_app_configs():
            if config.module is None or not module_has_submodule(config.module, "tasks"):
                continue
            name = f"{config.name}.tasks"
            try:
                module = import_module(name)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and hooks.must_pass(error):
                    raise
                hooks.report(error, "%s cannot be imported, so its tasks are unknown here.", name)
                _failed[name] = f"{type(error).__name__}: {hooks.text_of(error)}"
            else:
                _adopt(vars(module))
        _is_discovered = True
        return dict(_failed)


def autodiscover_once() -> None:
    """Import the ``tasks`` modules, unless this process has done so."""
    if not _is_discovered:
        autodiscover()


def _adopt(names: dict[str, object]) -> None:
    """Make tasks of other backends known: ``using(backend=…)`` may send them to djqueue."""
    for value in list(names.values()):
        # Not isinstance: it asks lazy objects of the module for their class, and so wakes them or fails.
        if issubclass(type(value), compat.Task) and not issubclass(type(value), Task):
            Task.of(value)  # type: ignore[arg-type]


def _sentence(name: str) -> str:
    sentence = (
        f"No task named {name!r} is known here. Is its app in INSTALLED_APPS, and is the task in the app's tasks.py?"
    )
    for module, error in _failed.items():
        if name.startswith(f"{module}."):
            sentence += f" {module} could not be imported: {error}."
    if similar := get_close_matches(name, KNOWN, n=1, cutoff=0.8):
        sentence += f" Did you mean {similar[0]!r}?"
    return sentence
