"""Look up the tasks of this process by name.

A row stores the name of its task, and only this module resolves that name to a function. A lookup never imports the module
that a row names. A task is known once its module was imported by the project or by ``autodiscover``, which imports only the
``tasks`` modules of INSTALLED_APPS.
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
    """Return a copy of the mapping of this process's tasks by name."""
    return dict(KNOWN)


def find(name: str) -> Task:
    """Return the task of this name; raise ``UnknownTask`` if there is none.

    The first unknown name starts ``autodiscover``, so that a web process that never imported an app's tasks can read
    their results.
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

    A broken module is logged with its traceback, so that the tasks of all other apps still run.
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
    """Import the ``tasks`` modules unless this process has already done so."""
    if not _is_discovered:
        autodiscover()


def _adopt(names: dict[str, object]) -> None:
    """Register tasks of other backends, because ``using(backend=…)`` may send their jobs to djqueue."""
    for value in list(names.values()):
        # Not isinstance(): it reads the __class__ of the module's lazy objects, which evaluates them or fails.
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
