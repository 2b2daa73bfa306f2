from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from djqueue import telemetry
from djqueue.exceptions import EngineUnavailable
from djqueue.service import Service


class Failing(Service):
    name = "failing"

    def __init__(self, errors: list[Exception]) -> None:
        super().__init__()
        self.errors = errors
        self.runs = 0
        self.recovered = threading.Event()

    def run_once(self) -> float:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        self.recovered.set()
        return 3600


def test_a_service_that_fails_goes_on_and_says_so() -> None:
    events: list[tuple[str, Mapping[str, Any]]] = []
    detach = telemetry.attach(lambda event, fields: events.append((event, fields)))
    service = Failing([EngineUnavailable("away"), ValueError("broken")])

    service.start()
    assert service.recovered.wait(10)
    service.stop()
    assert service.join(10)
    detach()

    assert [event for event, _ in events] == ["djqueue.service.failure"] * 2 + ["djqueue.service.recovered"]
    assert [fields["failures"] for _, fields in events] == [1, 2, 2]
    assert service.failures == 0


def test_a_service_can_be_stopped_before_it_is_started() -> None:
    service = Failing([])

    service.stop()
    service.start()

    assert service.join(10)
    assert service.runs == 0
    assert not service.has_died


def test_wake_ends_the_pause() -> None:
    class Counting(Service):
        def __init__(self) -> None:
            super().__init__()
            self.runs = threading.Semaphore(0)

        def run_once(self) -> float:
            self.runs.release()
            return 3600

    service = Counting()
    service.start()
    assert service.runs.acquire(timeout=10)

    service.wake()

    assert service.runs.acquire(timeout=10)
    service.stop()
    assert service.join(10)
