"""What takes new jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule


class Inserts(Protocol):
    """An engine, or what keeps jobs until they may go there."""

    def insert_one(self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False) -> InsertedJob: ...

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]: ...

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany: ...
