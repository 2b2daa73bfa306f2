"""A background part: a thread that calls ``run_once`` again and again.

The loop, the jitter, the wake-up, the error log and the stop are here, once. An error in ``run_once`` never ends the
loop: it is logged (a store that does not answer in one line, anything else with its traceback), and the loop goes on
after a pause that grows with each failure in a row.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

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
    """Override ``run_once``; it returns the seconds until it wants to run again."""

    name = "service"
    longest_pause_seconds = 10.0
    """Between two tries while nothing but failures comes."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.failures = 0
        """Failures in a row."""
        self._pauses = growing_pauses(_FIRST_PAUSE_SECONDS, self.longest_pause_seconds)
        self._reminder = Reminder()
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
        """Run again now."""
        self._woken.set()

    def stop(self) -> None:
        """Ask the loop to end. Idempotent, and legal before ``start``."""
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
        """Whether the thread has ended although nobody asked it to."""
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
                self._report(error, doing="on_stop")

    def _run_guarded(self) -> float:
        try:
            pause = self.run_once()
        except BaseException as error:  # the thread is ours: nothing that code of the project raises may end it
            self.failures += 1
            pause = next(self._pauses) * random.uniform(0.5, 1)  # noqa: S311  jitter, no secret
            self._report(error, failures=self.failures, retry_in_seconds=pause)
            return pause
        if self.failures:
            telemetry.emit("djqueue.service.recovered", service=self.name, failures=self.failures)
            self.failures = 0
            self._pauses = growing_pauses(_FIRST_PAUSE_SECONDS, self.longest_pause_seconds)
            self._reminder.forget()
        self.last_success = time.monotonic()
        return pause

    def _report(self, error: BaseException, **fields: Any) -> None:
        is_away = isinstance(error, EngineUnavailable)
        if is_away and not self._reminder.is_due(str(error)):
            return
        telemetry.emit(
            "djqueue.service.failure",
            logging.WARNING if is_away else logging.ERROR,
            exc_info=None if is_away else error,
            service=self.name,
            **fields,
            error=hooks.text_of(error),
        )
