"""The states of a job, and how django.tasks sees them.

The names are Oban's. Each has nine letters, which the storage makes use of: a claim writes ``executing`` over
``available`` and the new row version is exactly as long as the old one, so that it fits into the space kept free
on its page (a HOT update).

::

    scheduled ──stage──▶ available ──fetch──▶ executing ──ack──▶ completed · discarded · cancelled
        ▲                    ▲                    │
        └──────snooze────────┼────────────────────┤
    retryable ──stage────────┘◀──rescue, hand-back┤
        ▲                                         │
        └───────────────────fail──────────────────┘
    suspended: waits for other jobs
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    EXECUTING = "executing"
    RETRYABLE = "retryable"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL_STATES


LIVE_STATES = (JobState.SCHEDULED, JobState.AVAILABLE, JobState.EXECUTING, JobState.RETRYABLE, JobState.SUSPENDED)
FINAL_STATES = (JobState.COMPLETED, JobState.DISCARDED, JobState.CANCELLED)
