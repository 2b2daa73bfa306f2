"""Statements on the application's connection, in its transaction if there is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import connections

from djqueue.engines.postgres.execution import run_here
from djqueue.jobs.states import JobState


class Application:
    """The base class of the roles that run on the application's connection."""

    def __init__(self, alias: str, *, listen: bool = True) -> None:
        self.alias = alias
        self.listen = listen

    def execute(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return run_here(connections[self.alias], name, params)


def states_of(states: Iterable[JobState]) -> list[str] | None:
    return [state.value for state in states] or None
