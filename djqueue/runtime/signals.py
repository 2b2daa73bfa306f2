"""Signals that end a wait.

A handler only counts and writes a byte; everything else happens in the main loop. So no signal can fall into the
middle of a statement, and none is lost between a look at a flag and the sleep after it.
"""

from __future__ import annotations

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
"""What asks a process of ours to end. The last one comes when its terminal is closed."""

_leave_requests = 0


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Until there is anything to end in good order: end with exit code 0 when asked to."""
    before = {number: signal.signal(number, _leave) for number in _heeded(STOP_SIGNALS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_at_once() -> None:
    """The same, for the rest of this process."""
    for number in _heeded(STOP_SIGNALS):
        signal.signal(number, _leave)


def _leave(number: int, frame: object) -> None:
    global _leave_requests
    _leave_requests += 1
    if _leave_requests > 1:  # something swallows the exception
        os._exit(0)
    sys.exit(0)


def _heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Leave out what nohup wants ignored."""
    return [number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


class SignalPipe:
    def __init__(self, handlers: Mapping[signal.Signals, Callable[[], None] | None]) -> None:
        """``handlers`` run in the signal handler and may only set plain values; None: only end the wait."""
        self._handlers = {number: handlers[number] for number in _heeded(handlers)}
        self._before: dict[signal.Signals, object] = {}
        self._pipe = InterruptPipe()

    def __enter__(self) -> Self:
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, self._make(handler))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
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
