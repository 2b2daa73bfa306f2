"""The settings of the test suite, with an app whose ready() runs a query and, where there is one, a connection pool."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from importlib.util import find_spec

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.faults"]
if os.environ.get("DJQUEUE_TEST_POOL") and find_spec("psycopg_pool"):
    DATABASES["default"]["OPTIONS"] = {**DATABASES["default"]["OPTIONS"], "pool": {"min_size": 1, "max_size": 12}}
if os.environ.get("DJQUEUE_TEST_SLOW"):
    INSTALLED_APPS = [*INSTALLED_APPS, "tests.faults.slow"]
if os.environ.get("DJQUEUE_TEST_SLOW_MODELS"):
    INSTALLED_APPS = [*INSTALLED_APPS, "tests.faults.large"]
if os.environ.get("DJQUEUE_TEST_STOP_AT_EXIT") and "djqueue.runtime.child" not in sys.modules:
    # Stop signals without a pause, from the exit hooks of the supervisor to its very end.
    atexit.register(subprocess.Popen, ["sh", "-c", f"while kill -TERM {os.getpid()} 2>/dev/null; do :; done"])
if os.environ.get("DJQUEUE_TEST_LOGGING"):
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "WARNING"},
    }
# A project whose workers have a cache of their own.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "workers" if "runworker" in sys.argv else "site",
    }
}
