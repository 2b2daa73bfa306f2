"""The protocol of objects that accept new jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule


class Inserts(Protocol):
    """An engine, or an object that keeps jobs until they can be sent to one."""

    def insert_one(self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False) -> InsertedJob: ...

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]: ...

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany: ...
