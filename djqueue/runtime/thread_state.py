"""What djqueue knows of the current thread's database connections without asking Django for them.

To ask Django takes a tenth of a short job's time, so a job that uses no database must not pay for it.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db.backends.signals import connection_created


class _ThreadState(threading.local):
    has_connected = False
    """Whether a connection may be open in this thread."""
    is_shared = False
    """Whether this is a thread of the event loop's default executor: a job may end while its call here goes on."""
    was_cancelled = False
    """Whether SQL statements of the job that has just ended in this thread were cancelled."""
    helper: ThreadPoolExecutor | None = None
    """The thread in which event loops that a sync task runs call Django."""


current = _ThreadState()


def _note_new_connection(**kwargs: Any) -> None:
    current.has_connected = True


connection_created.connect(_note_new_connection)
