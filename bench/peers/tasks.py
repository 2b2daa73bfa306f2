"""The jobs of ``protocol.py`` as djqueue's tasks."""

from __future__ import annotations

from typing import Any

from bench.peers import protocol
from djqueue import task


@task
def noop(number: int, due: float) -> None:
    protocol.begin("noop", number, due)


@task
async def io(number: int, due: float) -> None:
    await protocol.arun("io", number, due)


@task
def cpu(number: int, due: float) -> None:
    protocol.run("cpu", number, due)


@task
def late(number: int, due: float) -> None:
    protocol.begin("late", number, due)


@task
def warm(number: int, due: float) -> None:
    protocol.begin("warm", number, due)


@task(max_attempts=3, backoff=0)
def flaky(number: int, due: float) -> None:
    protocol.begin("flaky", number, due)


def named(kind: str, variant: str) -> Any:
    found = {"noop": noop, "io": io, "cpu": cpu, "late": late, "warm": warm, "flaky": flaky}[kind]
    return found.using(durability="relaxed") if variant == "relaxed" else found
