"""Register workers and record their heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from djqueue.engines.protocol.session import Session
from djqueue.jobs.health import Inspection
from djqueue.jobs.records import Heartbeat, WorkerInfo


class Registrar(Session, Protocol):
    def inspect(self) -> Inspection:
        """Examine the server: its version, why workers cannot run on it, and which of its settings are unsafe."""

    def register(self, workers: Sequence[WorkerInfo]) -> None:
        """Register workers; committed before their first fetch. Idempotent, and does not revive dead ones."""

    def deregister(self, workers: Collection[UUID]) -> None:
        """Remove workers that hold no jobs any more."""

    def beat(self, workers: Collection[UUID], *, draining: Collection[UUID] = ()) -> list[Heartbeat]:
        """Raise the beat of live workers and return the beats of all known workers.

        A worker that is missing from the answer, or dead in it, is dead permanently.
        """

    def note_begun(self, claims: Mapping[int, int]) -> set[int]:
        """Record that the functions of these claims (job id → claim) have been called, for ``Maintainer.rescue``.

        Return the ids that were recorded: those that still execute under this claim and are not locked at this moment.
        """
