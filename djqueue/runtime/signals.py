"""Stop signals of the commands, from the start of their process to its end.

Before the main loop they end the process at once (``leave_at_once``). In the main loop a handler only counts and writes a
byte (``SignalPipe``), so no signal can interrupt a statement, and none is lost between the check of a flag and the sleep
after it. Once the exit code is decided they are ignored (``ignore_stop_signals``).
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from socket import socket
from types import TracebackType
from typing import Self

from djqueue.interrupts import InterruptPipe

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that ask a process to stop. SIGHUP is sent when its terminal is closed."""

_leave_requests = 0


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """End with exit code 0 at a stop signal, while there is nothing to end in order."""
    before = {number: signal.signal(number, _leave) for number in _handled(STOP_SIGNALS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _leave:  # else they are ignored until the process ends
                signal.signal(number, handler)


def leave_at_once() -> None:
    """End with exit code 0 at a stop signal, for the rest of this process."""
    for number in _handled(STOP_SIGNALS):
        signal.signal(number, _leave)
    atexit.register(ignore_stop_signals)


def ignore_stop_signals() -> None:
    """Ignore stop signals for the rest of this process, because its exit code is decided.

    The interpreter restores the default of every handled signal while it shuts down, and a signal would then replace the
    exit code by -15. It leaves ignored signals alone.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _leave(number: int, frame: object) -> None:
    global _leave_requests
    _leave_requests += 1
    if _leave_requests > 1:  # some code catches SystemExit
        os._exit(0)
    sys.exit(0)


def _handled(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Return the signals without SIGHUP if nohup has set it to be ignored."""
    return [number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


class SignalPipe:
    def __init__(
        self, handlers: Mapping[signal.Signals, Callable[[], None] | None], *, ends_process: bool = False
    ) -> None:
        """``handlers`` run in the signal handler and may only set plain values; None: only end the wait.

        ``ends_process``: the process ends after the block, so stop signals are ignored from then on.
        """
        self._handlers = {number: handlers[number] for number in _handled(handlers)}
        self._ends_process = ends_process
        self._before: dict[signal.Signals, object] = {}
        self._pipe = InterruptPipe()

    def __enter__(self) -> Self:
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, self._make(handler))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._ends_process:
            ignore_stop_signals()
            self._before = {number: before for number, before in self._before.items() if number not in STOP_SIGNALS}
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)  # type: ignore[arg-type]
        self._pipe.close()

    def wait(self, sockets: Sequence[socket], timeout: float) -> set[socket]:
        """Wait for a signal, for one of the sockets or for ``timeout`` seconds; return the sockets that have input."""
        sources: list[socket | int] = [self._pipe.reader, *sockets]
        readable, _, _ = select.select(sources, [], [], timeout)
        self._pipe.clear()
        return {one for one in sockets if one in readable}

    def wake(self) -> None:
        """End the wait; from any thread, and from a signal handler."""
        self._pipe.interrupt()

    def _make(self, handler: Callable[[], None] | None) -> Callable[[int, object], None]:
        def handle(number: int, frame: object) -> None:
            if handler is not None:
                handler()
            self.wake()

        return handle
