from __future__ import annotations

import os
import sys

from tests.settings import *  # noqa: F403
from tests.settings import tasks

sys.modules["psycopg"] = None  # type: ignore[assignment]  # whoever imports it now gets an ImportError

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DJQUEUE_SQLITE"]}}
TASKS = tasks("redis")
