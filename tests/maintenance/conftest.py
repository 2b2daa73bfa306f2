from __future__ import annotations

from tests.engines.conftest import (
    engine,
    listener,
    me,
    open_listener,
    open_worker,
    postgres,
    register,
    worker,
)

__all__ = ["engine", "listener", "me", "open_listener", "open_worker", "postgres", "register", "worker"]
