"""Compare the settings of a worker process with those of its supervisor.

A worker loads the settings module again, without what changed in the supervisor's process since then: the name of a test
database, ``override_settings``. It would fetch jobs from another database or server and run them there. So it compares the
settings before it sets Django up, and refuses to start if they differ.
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
    """Return a digest of each setting that decides where jobs are and what they access; ``backend``: the alias that is served."""
    tasks: Mapping[str, Any] = getattr(settings, "TASKS", {})
    options = tasks.get(backend, {}).get("OPTIONS") or {}
    found: dict[str, Any] = {}
    for alias, database in settings.DATABASES.items():
        if database.get("ENGINE", _NO_ENGINE) == _NO_ENGINE:
            continue  # Django adds this entry when it first reads the settings
        # User, password and the choice of a replica may change with every load.
        keys = ("ENGINE", "NAME", "HOST", "PORT") if alias == options.get("database", "default") else ("ENGINE", "NAME")
        found[f"DATABASES[{alias!r}]"] = [str(database.get(key) or "") for key in keys]
    for alias, cache in settings.CACHES.items():
        found[f"CACHES[{alias!r}]"] = [str(cache.get("BACKEND")), str(cache.get("LOCATION"))]
    for alias, entry in tasks.items():
        found[f"TASKS[{alias!r}]"] = entry
    return {name: _digest(value) for name, value in found.items()}


def differences(theirs: Mapping[str, str], backend: str) -> list[str]:
    """Return the names of the settings that differ from the supervisor's, given by their ``digests``."""
    ours = digests(backend)
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def refusal(names: list[str]) -> str:
    """Return the error message for settings that differ."""
    return (
        f"Worker processes cannot use the settings of this process: {', '.join(names)} in the settings module"
        f" {module()!r} differ from what is set here. Worker processes load the settings module again, without"
        " override_settings() and test databases. Run manage.py runworker as a separate process with its own settings."
    )


def _digest(value: object) -> str:
    # A digest, because all users can read command lines, and a URL may contain a password.
    text = json.dumps(_plain(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    """Return a value for JSON that is the same in every process: without memory addresses and random order."""
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
