"""The settings of the test suite, with the app that has a crontab."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as OTHERS

INSTALLED_APPS = [*OTHERS, "tests.crontab"]
