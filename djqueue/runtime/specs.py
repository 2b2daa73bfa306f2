"""What a supervisor and its worker processes have to do, from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpec:
    """Queues that share slots."""

    queues: tuple[str, ...]
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Options of a worker process."""

    name: str
    backend: str
    lanes: tuple[LaneSpec, ...]
    drain: bool = False
    max_jobs: int | None = None
    max_rss_mebibytes: int | None = None
    max_age_seconds: float | None = None
    verbosity: int = 1

    @property
    def queues(self) -> dict[str, int | None]:
        """Slots of the lane of each queue."""
        return {queue: lane.slots for lane in self.lanes for queue in lane.queues}

    @property
    def concurrency(self) -> int:
        return sum(lane.slots for lane in self.lanes)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        lanes = tuple(LaneSpec(queues=tuple(lane["queues"]), slots=lane["slots"]) for lane in values["lanes"])
        return cls(**{**values, "lanes": lanes})


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec(WorkerSpec):
    """Options of a supervisor and of its worker processes."""

    processes: int = 1
    cron: bool = False
    """Enqueue the jobs of the crontab while it leads."""

    def worker_json(self, name: str) -> dict[str, Any]:
        """Return the options of one worker process in the form that ``WorkerSpec.from_json`` takes."""
        values = asdict(self)
        return {field.name: values[field.name] for field in fields(WorkerSpec)} | {"name": name}
