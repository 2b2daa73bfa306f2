"""The records of control: the outcome for each job, and the request that stops an executing one."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ControlOutcome(StrEnum):
    """The outcome of a request to control a job."""

    CANCELLED = "cancelled"
    REQUESTED = "requested"
    """The job is executing. The request is stored in its row, and its worker will read it."""
    RETRIED = "retried"
    DISCARDED = "discarded"
    DELETED = "deleted"
    SKIPPED = "skipped"
    """Nothing was done; ``reason`` says why."""


class Controlled(NamedTuple):
    """The outcome of a request to cancel, retry, discard or delete one job."""

    id: int
    outcome: ControlOutcome
    reason: str = ""
    """Why nothing was done, in a few words."""
    held_by: int | None = None
    """The live job that holds the unique key of a job which could not be retried."""

    @property
    def is_done(self) -> bool:
        return self.outcome is not ControlOutcome.SKIPPED


class CancelRequest(NamedTuple):
    """A request to stop the job that executes under this claim."""

    id: int
    claim: int
    by: str
    reason: str
