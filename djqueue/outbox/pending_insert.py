"""Inserts that wait to be sent from a transaction to a store outside it.

A pending insert holds jobs with the ids reserved for them. The ids make it idempotent, so a sender that does not know
whether it arrived sends it again.

While it waits it is kept as text: in memory, in a temporary file or in a row of the outbox. An older or newer djqueue may
read that row, so all values are named and defaults are omitted.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, Self, TypeVar

from djqueue import telemetry
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.control import Controlled
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.moments import as_aware
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule

_Answer = TypeVar("_Answer")
_AT_ONCE_SECONDS = 1.0
"""A dead connection fails within this time, and a retry on a new connection may succeed."""
_NO_TIME = timedelta(microseconds=1)


class PendingEngine(Protocol):
    """An engine that stores jobs under ids which it has reserved before."""

    def reserve(self, count: int) -> Sequence[int]: ...

    def insert(
        self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY, ids: Sequence[int] | None = None
    ) -> list[InsertedJob]: ...

    def insert_many(
        self, job: NewJob, arguments: Sequence[Encoded], *, ids: Sequence[int] | None = None
    ) -> InsertedMany: ...

    def holders(self, keys: Sequence[str], *, rule: UniqueRule) -> dict[str, InsertedJob]: ...

    def delete(self, ids: Collection[int]) -> list[Controlled]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingInsert:
    jobs: Sequence[NewJob]
    """The jobs to store. With ``arguments``, one job that holds the values that all have in common."""
    ids: Sequence[int]
    rule: UniqueRule = LIVE_ONLY
    arguments: Sequence[Encoded] | None = None

    def send(self, engine: PendingEngine) -> None:
        """Store the jobs that are not stored yet."""
        if self.arguments is not None:
            arguments = self.arguments
            again(lambda: engine.insert_many(self.jobs[0], arguments, ids=self.ids))
            return
        answers = again(lambda: engine.insert(self.jobs, rule=self.rule, ids=self.ids))
        for new, id, answer in zip(self.jobs, self.ids, answers, strict=True):
            if answer.was_duplicate:
                # The caller already has this id and can no longer be informed.
                telemetry.emit(
                    "djqueue.enqueue.duplicate",
                    logging.WARNING if self.rule.is_exclusive else logging.INFO,
                    job=id,
                    task=new.task,
                    held_by=answer.id,
                )

    def aged(self, age: timedelta) -> Self:
        """Return the insert as of ``age`` later, so that delays count from the enqueue and not from each attempt to send."""

        def older(job: NewJob) -> NewJob:
            delay = None if job.delay is None else max(timedelta(0), job.delay - age)
            max_age = None if job.max_age is None else max(_NO_TIME, job.max_age - age)
            return job._replace(delay=delay, max_age=max_age)

        return replace(self, jobs=[older(job) for job in self.jobs])

    def as_text(self) -> str:
        values: dict[str, Any] = {"first_id": self.ids[0], "jobs": [_job_as_dict(job) for job in self.jobs]}
        if self.arguments is not None:
            values["arguments"] = self.arguments
        if self.rule != LIVE_ONLY:
            values["rule"] = _changed(
                {each.name: getattr(self.rule, each.name) for each in fields(UniqueRule)}, _RULE_DEFAULTS
            )
        return json.dumps(values, separators=(",", ":"), default=_as_plain)

    @classmethod
    def from_text(cls, text: str) -> Self:
        values = json.loads(text)
        arguments = values.get("arguments")
        count = len(values["jobs"] if arguments is None else arguments)
        return cls(
            jobs=[NewJob(**_revived(job)) for job in values["jobs"]],
            ids=range(values["first_id"], values["first_id"] + count),
            rule=UniqueRule(**_revived(values.get("rule", {}))),
            arguments=None if arguments is None else [Encoded(*pair) for pair in arguments],
        )


def again(insert: Callable[[], _Answer]) -> _Answer:
    """Insert, and retry once after a quick failure. The ids make the retry safe whatever the first attempt did."""
    began = time.monotonic()
    try:
        return insert()
    except EngineUnavailable:
        if time.monotonic() - began > _AT_ONCE_SECONDS:
            raise
        return insert()


_JOB_DEFAULTS = NewJob._field_defaults
_RULE_DEFAULTS = {each.name: each.default for each in fields(UniqueRule)}
_REVIVERS: dict[str, Callable[[Any], Any]] = {
    "scheduled_at": datetime.fromisoformat,
    "expires_at": datetime.fromisoformat,
    "delay": lambda seconds: timedelta(seconds=seconds),
    "max_age": lambda seconds: timedelta(seconds=seconds),
    "window": lambda seconds: timedelta(seconds=seconds),
}


def _job_as_dict(job: NewJob) -> dict[str, Any]:
    return _changed(job._asdict(), _JOB_DEFAULTS)


def _changed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}


def _as_plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        # The process that sends it may have another TIME_ZONE.
        return as_aware(value).isoformat()
    raise TypeError(f"{value!r} has no place in a push.")


def _revived(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _REVIVERS[name](value) if name in _REVIVERS else value for name, value in values.items()}
