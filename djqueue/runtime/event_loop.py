"""The event loop on which async jobs run.

``SystemExit`` and ``KeyboardInterrupt`` in a callback or in a task that a job started end ``run_forever``, and so does
``loop.stop()``. Everything that waits on the loop is still there afterwards, so the loop is run again: the job that
awaits the exception gets it, and no other job is affected. An error of the loop itself (a closed selector) cannot be
repaired: the loop counts as died, and the worker process is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from djqueue import telemetry
from djqueue.runtime import django_connections
from djqueue.runtime.helper_threads import SharedThreads
from djqueue.service import Service


async def _do_nothing(timeout: float | None = None) -> None:
    pass


class EventLoop(Service):
    """Its thread starts with the first call, so a worker without async jobs has none."""

    name = "event_loop"

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()
        self._is_broken = False

    def call(self, callback: Callable[..., object], *args: Any) -> None:
        """Call this on the loop soon; from any thread."""
        if (loop := self._loop) is None:
            with self._starting:
                if (loop := self._loop) is None:
                    loop = self._loop = asyncio.new_event_loop()
                    loop.set_default_executor(SharedThreads(thread_name_prefix="djqueue-shared"))
                    # A task that ends its loop as a script does would make asyncio.to_thread fail in all later jobs.
                    loop.shutdown_default_executor = _do_nothing  # type: ignore[method-assign]
                    self.start()
        loop.call_soon_threadsafe(callback, *args)

    def wake(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # closed already
                self._loop.call_soon_threadsafe(self._loop.stop)

    @property
    def has_died(self) -> bool:
        return self._is_broken or super().has_died

    def run_once(self) -> float:
        """Run until the loop is stopped or interrupted; the next call continues from there."""
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            telemetry.emit("djqueue.loop.interrupted", logging.WARNING, exc_info=error, by=type(error).__name__)
        except BaseException as error:
            self._is_broken = True
            telemetry.emit("djqueue.loop.broken", logging.CRITICAL, exc_info=error, error=type(error).__name__)
            self.stop()
        else:
            if not self.is_stopping:
                telemetry.emit("djqueue.loop.interrupted", logging.WARNING, by="loop.stop()")
        return 0

    def on_stop(self) -> None:
        assert self._loop is not None
        try:
            if not self._is_broken:
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
        finally:
            django_connections.close_all()
