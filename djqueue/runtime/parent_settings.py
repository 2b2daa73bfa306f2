"""Whether a worker process works where its supervisor does.

A worker loads the settings module anew. What the supervisor's process changed since is not in there: the name of a test
database, ``override_settings``. Jobs would then be taken from another database or server, and
run there, so the worker compares before it sets Django up, and refuses to start when something differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.conf import UserSettingsHolder, settings

from djqueue.adapters.django import loaded_settings

_NO_ENGINE = "django.db.backends.dummy"


def module() -> str | None:
    """Return the name of the settings module; None if the settings come from ``settings.configure()``."""
    loaded: Any = settings.DATABASES and loaded_settings(settings)  # the first loads them
    while isinstance(loaded, UserSettingsHolder):
        loaded = loaded.default_settings
    return getattr(loaded, "SETTINGS_MODULE", None)


def digests(backend: str) -> dict[str, str]:
    """Return a digest of each setting that says where jobs are and what they reach; ``backend``: which entry is served."""
    tasks: Mapping[str, Any] = getattr(settings, "TASKS", {})
    options = tasks.get(backend, {}).get("OPTIONS") or {}
    found: dict[str, Any] = {}
    for alias, database in settings.DATABASES.items():
        if database.get("ENGINE", _NO_ENGINE) == _NO_ENGINE:
            continue  # Django writes this into the settings when it first looks at them
        # User and password may be new with every load, and so may be which replica is asked.
        keys = ("ENGINE", "NAME", "HOST", "PORT") if alias == options.get("database", "default") else ("ENGINE", "NAME")
        found[f"DATABASES[{alias!r}]"] = [str(database.get(key) or "") for key in keys]
    for alias, cache in settings.CACHES.items():
        found[f"CACHES[{alias!r}]"] = [str(cache.get("BACKEND")), str(cache.get("LOCATION"))]
    for alias, entry in tasks.items():
        found[f"TASKS[{alias!r}]"] = entry
    return {name: _digest(value) for name, value in found.items()}


def differences(theirs: Mapping[str, str], backend: str) -> list[str]:
    """Return the names of the settings that are not what ``digests`` said of the supervisor's."""
    ours = digests(backend)
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def refusal(names: list[str]) -> str:
    """Say why no worker can start."""
    return (
        f"The worker processes would not work where this process does: {', '.join(names)} of the settings module"
        f" {module()!r} differ from what is set here. Worker processes load the settings module anew and do not see"
        " override_settings() or the databases of a test. Run manage.py runworker as a process with settings of its own."
    )


def _digest(value: object) -> str:
    # A digest, for command lines can be read by everybody, and an address may contain a password.
    text = json.dumps(_plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    """Return a value as JSON can say it, the same in every process: without addresses and orders of chance."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    text = str(value)
    return type(value).__qualname__ if " at 0x" in text else text
