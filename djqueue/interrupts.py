"""A pipe that ends a wait for file descriptors (``select``, ``poll``) from another thread or a signal handler."""

from __future__ import annotations

import os
from contextlib import suppress


class InterruptPipe:
    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        """``reader`` is readable after ``interrupt`` until ``clear``; -1 after ``close``."""
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def interrupt(self) -> None:
        """End the current or next wait. Never raises and never blocks."""
        with suppress(OSError):  # full, so the wait ends anyway; or closed, so nothing waits
            os.write(self._writer, b"!")

    def clear(self) -> None:
        """Forget all interrupts so far."""
        with suppress(BlockingIOError):
            while os.read(self.reader, 4096):
                pass

    def close(self) -> None:
        """Close both ends. Idempotent."""
        if self.reader >= 0:
            reader, writer = self.reader, self._writer
            self.reader = self._writer = -1
            os.close(writer)
            os.close(reader)
