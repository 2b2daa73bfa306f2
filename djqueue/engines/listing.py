"""Rules of lists of jobs, the same for every store."""

from __future__ import annotations

from datetime import timedelta

from djqueue.exceptions import InvalidPosition
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState

READ_LIMIT = timedelta(seconds=2)
"""How long a search for a page may take before it is stopped."""
BEGINNING = 161
"""How many characters of arguments and errors a row has."""


def states_of_list(jobs: JobFilter) -> tuple[JobState, ...]:
    """Return the states of the jobs of a list: those of the filter, and without any the live ones."""
    states = jobs.states or LIVE_STATES
    if set(states) & set(LIVE_STATES) and set(states) & set(FINAL_STATES):
        raise ValueError("Invalid filter: a list has either live or finished jobs.")
    return tuple(states)


def invalid_position(text: str) -> InvalidPosition:
    return InvalidPosition(f"Invalid position {text!r:.80}: use one that an earlier page returned.")
