"""Undocumented parts of asgiref."""

from __future__ import annotations

from collections.abc import Container
from concurrent.futures import Executor
from typing import Any

from asgiref.sync import SyncToAsync

contexts_with_threads: Container[Any] = SyncToAsync.context_to_thread_executor
"""Holds each ``ThreadSensitiveContext`` in which sync code has been called, and which has a thread since."""


def use_for_sync_code(executor: Executor) -> None:
    """Run in this executor what ``sync_to_async`` calls outside of a ``ThreadSensitiveContext``."""
    SyncToAsync.single_thread_executor = executor  # type: ignore[assignment]  # annotated as the thread pool it is by default
