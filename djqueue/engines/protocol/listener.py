"""Wait for work without polling."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from djqueue.engines.protocol.session import Session

STAGE = "!stage"
"""The name that the stager marks while it sleeps. No queue can have this name."""
STAGE_LOOK_SECONDS = 1.0
"""The longest sleep of the stager. A job that is due later is found by its next search, and needs no wake-up."""
SOON_SECONDS = 1.5 * STAGE_LOOK_SECONDS
"""Storing a job that is due within this time wakes the stager."""


class Listener(Session, Protocol):
    """Call ``mark`` before the last search for jobs and ``wait`` after it: a process that stores a job after that search
    finds the mark and wakes the sleeper.

    Call ``mark`` before each ``wait``. It costs nothing while a mark stands: until it is withdrawn or, in some stores,
    until the sleeper is woken. Where the store cannot wake sleepers (behind a pooler), ``mark`` does nothing and ``wait``
    returns at its timeout.
    """

    def mark(self, queues: Collection[str]) -> bool:
        """Announce a sleeper on these queues, to be woken by new jobs.

        Return whether all of them were announced before: then no job can have arrived since the previous search. Otherwise
        the caller must search once more. One mark for all sleepers of a queue is enough.
        """

    def unmark(self, queues: Collection[str] | None = None) -> None:
        """Withdraw the marks on these queues; None: on all. Cheap when they are not marked.

        Other sleepers of a queue that was marked here are woken, so that one of them marks it.
        """

    def wait(self, timeout: float) -> set[str]:
        """Sleep until one of the queues is woken, ``interrupt`` is called or ``timeout`` seconds have passed.

        Return the payloads of the wake-ups, which may be empty. They include the names whose marks were lost.
        """

    def interrupt(self) -> None:
        """End the current or next ``wait``. The only method that other threads and signal handlers may call."""
