"""The settings of the test suite, with an app whose ready() runs a query and, where there is one, a connection pool."""

from __future__ import annotations

import os
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
