"""A background service: a thread that calls ``run_once`` repeatedly.

The loop, the jitter, the wake-up, the error log and the stop are implemented here. An error in ``run_once`` never ends the
loop: it is logged (a store that does not answer in one line, anything else with its traceback), and the loop continues
after a pause that grows with each failure in a row.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator

from djqueue import hooks, telemetry
from djqueue.exceptions import EngineUnavailable
from djqueue.reminders import Reminder

_FIRST_PAUSE_SECONDS = 0.2


def growing_pauses(first: float, longest: float) -> Iterator[float]:
    """Yield the seconds to wait between tries, without end: each twice the one before, up to ``longest``."""
    pause = first
    while True:
        yield min(pause, longest)
        pause = min(pause * 2, longest)


class Service:
    """Override ``run_once``, which returns the seconds until its next call."""

    name = "service"
    longest_pause_seconds = 10.0
    """Maximum number of seconds between two tries after failures."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.failures = 0
        """Number of failures in a row."""
        self._pauses = growing_pauses(_FIRST_PAUSE_SECONDS, self.longest_pause_seconds)
        self._reminder = Reminder()
        self.last_run: float | None = None
        """When a service of the leader last did its work as the leader, by the monotonic clock; None before that."""
        self.last_success = time.monotonic()
        """When ``run_once`` last returned, by the monotonic clock."""

    def run_once(self) -> float:
        raise NotImplementedError

    def on_stop(self) -> None:
        """Clean up, in the service's own thread, after the last ``run_once``."""

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name=f"djqueue-{self.name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Call ``run_once`` again now."""
        self._woken.set()

    def stop(self) -> None:
        """Ask the loop to end. Idempotent; may be called before ``start``."""
        self._stopping = True
        self.wake()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread; return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_died(self) -> bool:
        """Whether the thread has ended without a call of ``stop``."""
        return self._thread is not None and not self._thread.is_alive() and not self._stopping

    def run(self) -> None:
        try:
            while not self._stopping:
                pause = self._run_guarded()
                if pause > 0 and not self._stopping:
                    self._woken.wait(pause)
                self._woken.clear()
        finally:
            try:
                self.on_stop()
            except BaseException as error:
                self._report(error, doing="on_stop", retry_in_seconds=None)

    def _run_guarded(self) -> float:
        try:
            pause = self.run_once()
        except BaseException as error:  # nothing that the project's code raises may end this thread
            self.failures += 1
            pause = next(self._pauses) * random.uniform(0.5, 1)  # noqa: S311  jitter, no secret
            self._report(error, doing="run_once", retry_in_seconds=pause)
            return pause
        if self.failures:
            telemetry.emit("djqueue.service.recovered", service=self.name, failures=self.failures)
            self.failures = 0
            self._pauses = growing_pauses(_FIRST_PAUSE_SECONDS, self.longest_pause_seconds)
            self._reminder.forget()
        self.last_success = time.monotonic()
        return pause

    def _report(self, error: BaseException, *, doing: str, retry_in_seconds: float | None) -> None:
        is_away = isinstance(error, EngineUnavailable)
        if is_away and not self._reminder.is_due(str(error)):
            return
        telemetry.emit(
            "djqueue.service.failure",
            logging.WARNING if is_away else logging.ERROR,
            exc_info=None if is_away else error,
            service=self.name,
            failures=self.failures,
            retry_in_seconds=retry_in_seconds,
            doing=doing,
            error=hooks.text_of(error),
        )
