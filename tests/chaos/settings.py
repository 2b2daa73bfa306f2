"""The settings of the test suite, with the tasks of the chaos run."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, TASKS

INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app != "tests.app"), "tests.chaos"]
_default = {**TASKS["default"], "QUEUES": ["default", "slow", "single"]}
if _default["BACKEND"].endswith("RedisBackend"):
    # What a transaction enqueues while the server is away must arrive.
    _default["OPTIONS"] = {**_default["OPTIONS"], "outbox": True}
TASKS = {"default": _default}
