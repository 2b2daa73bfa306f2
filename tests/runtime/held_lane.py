"""A lane that starts nothing itself, for tests that decide when jobs start and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from djqueue.runtime.execution import Execution
from djqueue.runtime.lanes import Lane


def ignore(*args: Any) -> None:
    pass


class _Executor:
    """In place of the executor: async jobs go to the test, and idle threads have no connections."""

    def __init__(self, on_async: Callable[[Sequence[Execution]], object]) -> None:
        self._on_async = on_async
        self.event_loop = self

    def call(self, callback: Callable[..., object], executions: Sequence[Execution]) -> None:
        self._on_async(executions)

    def release_connections(self) -> None:
        pass


class HeldLane(Lane):
    def __init__(
        self,
        queues: Sequence[str],
        slots: int,
        on_thread: Callable[[Lane], object] = ignore,
        on_async: Callable[[Sequence[Execution]], object] = ignore,
    ) -> None:
        """``on_thread`` is called in place of starting a thread, ``on_async`` in place of starting async jobs."""
        super().__init__(queues, slots, _Executor(on_async))  # type: ignore[arg-type]
        self.on_thread = on_thread

    def start_thread(self) -> None:
        self.on_thread(self)


def begin_first(started: list[Execution]) -> Callable[[Lane], None]:
    """Return an ``on_thread`` that takes the first job of a new thread and adds it to ``started``."""

    def begin(lane: Lane) -> None:
        execution = lane.first_for_thread()
        assert execution is not None
        started.append(execution)

    return begin
