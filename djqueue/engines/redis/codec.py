"""Encode and decode jobs as the scripts store them: msgpack with JSON texts, times in microseconds; see ``lua/lib.lua``.

A newer version of djqueue may add values at the end of a list. They are ignored here, so that during an upgrade the workers of
both versions can run the jobs of both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Literal
from uuid import UUID

import msgpack

from djqueue.jobs.lists import QueueRules, WorkerStatus, served_queues
from djqueue.jobs.moments import as_aware
from djqueue.jobs.records import ClaimedJob, Job, NewJob, TakenJob
from djqueue.jobs.states import JobState

STATES = (
    JobState.SCHEDULED,
    JobState.AVAILABLE,
    JobState.EXECUTING,
    JobState.RETRYABLE,
    JobState.SUSPENDED,
    JobState.COMPLETED,
    JobState.DISCARDED,
    JobState.CANCELLED,
)
"""A state is stored as its position in this list, from 1."""
NUMBERS = {state: number for number, state in enumerate(STATES, 1)}
LEVEL = 2**44
"""The distance between the scores of two adjacent priorities."""
LONGEST_DELAY_SECONDS = 3650 * 86400
"""Python cannot represent a year after 9999."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
_RUN_LENGTH, _LEAST_RUN = 18, 7
_IS_AWAITED = 32
"""The flag of a job that others wait for."""
_UNTOUCHED: tuple[Any, ...] = (None, 0, 0, *[False] * (_RUN_LENGTH - 3))
"""The run of a job that has not been claimed or changed yet."""
# Lua packs bytes as text. With surrogateescape, bytes that are not valid text survive decoding and encoding.
unpack = partial(msgpack.unpackb, unicode_errors="surrogateescape")


def micros(at: datetime) -> int:
    """Return a time in its stored form: microseconds since the epoch."""
    return (as_aware(at) - _EPOCH) // MICROSECOND


@lru_cache(4096)
def moment(at: float) -> datetime:
    """Return a stored time. Cached, because jobs that were stored or claimed together share theirs."""
    return _EPOCH + timedelta(0, 0, at)


def clock(now: datetime | None) -> bytes:
    """Return a time as a script's argument; empty for the server's clock."""
    return b"" if now is None else b"%d" % micros(now)


def common(job: NewJob) -> tuple[Any, ...]:
    """Return the values shared by jobs that differ only in their arguments. When packed, its first byte is left out."""
    return (job.queue, job.priority, job.max_attempts, job.unique_key, job.task, job.meta)


def job_bytes(jobs: Sequence[NewJob]) -> int:
    """Return the approximate size of the jobs in bytes."""
    return sum([len(job.args) + len(job.kwargs) + len(job.meta) for job in jobs])


def is_plain(job: NewJob) -> bool:
    """Return whether a job has no times of its own."""
    return job.scheduled_at is None and job.delay is None and job.expires_at is None and job.max_age is None


def times(job: NewJob) -> tuple[Any, ...]:
    """Return when a job is due and when it expires, in the format of the inserting scripts; False for none."""
    return (
        job.scheduled_at is not None and micros(job.scheduled_at),
        job.delay is not None and job.delay // MICROSECOND,
        job.expires_at is not None and micros(job.expires_at),
        job.max_age is not None and job.max_age // MICROSECOND,
    )


def one(job: NewJob, pack: Callable[[Any], bytes]) -> tuple[str, bytes, int]:
    """Return a job without times of its own in the format of ``insert_one.lua``."""
    return job.queue, pack((*common(job), (job.args, job.kwargs)))[1:], (100 - job.priority) * LEVEL


def columns(jobs: Sequence[NewJob], pack: Callable[[Any], bytes]) -> list[Any]:
    """Return jobs in the format of ``insert.lua``: nine values for each."""
    flat: list[Any] = []
    for job in jobs:
        flat += (pack(common(job))[1:], pack((job.args, job.kwargs)), job.queue, job.priority)
        flat += times(job)
        flat.append(job.unique_key is not None and job.unique_key)
    return flat


UNREADABLE = "unreadable"
"""The task name shown for a job that cannot be decoded because it was edited by hand."""


def read_pause(name: bytes, about: bytes) -> QueueRules:
    """Decode a pause. One that cannot be decoded still pauses its queue, so it is returned too."""
    queue = name.decode(errors="replace")
    try:
        at, by, reason, *_ = unpack(about)
        return QueueRules(queue, moment(at), str(by), str(reason))
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException):
        return QueueRules(queue, _EPOCH, UNREADABLE, UNREADABLE)


def read_workers(
    now: int, abouts: Sequence[bytes], beats: Sequence[bytes], dead: Sequence[bytes]
) -> list[WorkerStatus]:
    """Decode the hashes of workers and beats and the ids of the dead, in order of name; leave out what is not a worker's."""
    beat_of = dict(zip(beats[::2], beats[1::2], strict=True))
    found = []
    for id, about in zip(abouts[::2], abouts[1::2], strict=True):
        with suppress(ValueError, TypeError, OverflowError, msgpack.UnpackException):
            name, hostname, pid, queues, concurrency, *_ = unpack(about)
            _, beat_at, is_draining, *_ = unpack(beat_of.get(id))
            found.append(
                WorkerStatus(
                    id=UUID(id.decode()),
                    name=str(name),
                    hostname=str(hostname),
                    pid=int(pid),
                    queues=served_queues(queues),
                    concurrency=int(concurrency),
                    silent_seconds=(now - int(beat_at)) / 1e6,
                    is_draining=bool(is_draining),
                    is_dead=id in dead,
                )
            )
    return sorted(found, key=lambda worker: (worker.name, worker.id))


def read_job(id: int, payload: bytes, run: bytes | None, proof: bytes | None, due: bytes | None) -> Job:
    """Decode a job. Of one that cannot be decoded, return what is known."""
    try:
        return _read_job(id, payload, run, proof, due)
    except Exception as error:  # msgpack has many; one bad job must not hide the others in a list
        reason = f"It cannot be read, somebody edited it: {type(error).__name__}: {error}"
    try:
        ended: Sequence[Any] = unpack(run) if run is not None else ()
        is_final = STATES[ended[0] - 1].is_final
        finished = moment(ended[6])
        errors = json.loads(errors_text(ended[9]))
    except Exception:
        is_final, finished, errors = False, None, []
    state = JobState.EXECUTING if proof else JobState.AVAILABLE if due is None else JobState.SCHEDULED
    return Job(
        id=id, state=STATES[ended[0] - 1] if is_final else state, queue=UNREADABLE, task=UNREADABLE, args=[], kwargs={}, priority=0,
        attempt=0, max_attempts=0, claim=0, attempted_by=None, attempted_at=None, inserted_at=_EPOCH, scheduled_at=None,
        ready_at=None, expires_at=None, started_at=None, finished_at=finished if is_final else None, errors=errors, result=None,
        meta={"parked": reason}, unique_key=None, cancel_request=None,
    )  # fmt: skip


def _read_job(id: int, payload: bytes, run: bytes | None, proof: bytes | None, due: bytes | None) -> Job:
    _, inserted, scheduled, expires, queue, priority, max_attempts, key, task, meta, (args, kwargs), *_ = unpack(
        payload
    )
    (
        state, attempt, claim, worker, attempted, started, finished, ready, result, errors, notes, rescheduled, reexpires,
        snoozed, interrupted, most_attempts, request, steps,
    ) = _run(run)  # fmt: skip
    if proof is not None:
        state = NUMBERS[JobState.EXECUTING]
        claim, attempt, attempted, worker, *_ = unpack(proof)
    elif state is None:
        state = NUMBERS[JobState.AVAILABLE if due is None else JobState.SCHEDULED]
        ready = 0 if due is not None else ready
    return Job(
        id=id,
        state=STATES[state - 1],
        queue=queue,
        task=task,
        args=_json(args),
        kwargs=_json(kwargs),
        priority=priority,
        attempt=attempt,
        max_attempts=most_attempts or max_attempts,
        claim=claim,
        attempted_by=UUID(worker) if worker else None,
        attempted_at=moment(attempted) if attempted else None,
        inserted_at=moment(inserted),
        # Less than 0: a delay that has not begun.
        scheduled_at=_changed(max(rescheduled, 0) if rescheduled else rescheduled, scheduled),
        ready_at=_changed(ready, inserted),
        expires_at=_changed(reexpires, expires),
        started_at=moment(started) if started else None,
        finished_at=moment(finished) if finished else None,
        errors=[_dated(error) for error in json.loads(errors_text(errors))],
        result=json.loads(result) if result else None,
        meta=merged_meta(meta, notes, snoozed, interrupted, steps),
        unique_key=key,
        cancel_request=None if not request else _request(*request),
    )


def _json(text: str) -> Any:
    """Decode JSON; return a text that is not JSON unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_claimed(at: int, id: bytes, payload: bytes, run: bytes | None = None, flow: bytes | None = None) -> ClaimedJob:
    """Decode a fetched job."""
    _, inserted, scheduled, expires, queue, priority, max_attempts, _, task, meta, (args, kwargs), *_ = unpack(payload)
    if run is None:
        inserted_at = moment(inserted)
        return ClaimedJob(
            int(id), at, queue, task, args, kwargs, 1, max_attempts, priority, inserted_at, None,
            None if scheduled is None else moment(scheduled), None if expires is None else moment(expires),
            moment(at), "[]", meta, inserted_at, None if flow is None else int(flow),
            payload[1] & _IS_AWAITED != 0 or None,
        )  # fmt: skip
    (
        _, attempt, claim, _, _, started, _, ready, _, errors, notes, rescheduled, reexpires, snoozed, interrupted, most, _, steps,
    ) = _run(run)  # fmt: skip
    if notes or snoozed or interrupted or steps:
        meta = json.dumps(merged_meta(meta, notes, snoozed, interrupted, steps), ensure_ascii=False)
    return ClaimedJob(
        int(id), max(at, claim + 1), queue, task, args, kwargs, attempt + 1, most or max_attempts, priority,
        moment(inserted), moment(started) if started else None, _changed(rescheduled, scheduled), _changed(reexpires, expires),
        moment(at), errors_text(errors), meta, moment(ready or inserted), None if flow is None else int(flow),
        payload[1] & _IS_AWAITED != 0 or None,
    )  # fmt: skip


def read_taken(at: int, worker: UUID, *stored: Any) -> TakenJob:
    """Decode a taken job, which is not in the store any more."""
    job = TakenJob._make(read_claimed(at, *stored))
    job.attempted_by = worker
    payload = stored[1]
    if payload[1] & 1:  # the flag of a job with a unique key
        job.unique_key = unpack(payload)[7]
    return job


def errors_text(errors: Sequence[Any] | Literal[False]) -> str:
    """Return the errors of a job as JSON. Scripts cannot write JSON, so the notes that they stored become errors here."""
    if not errors:
        return "[]"
    return f"[{','.join(error if isinstance(error, str) else json.dumps(_noted(*error)) for error in errors)}]"


def _dated(error: Any) -> Any:
    """Set the time of an error to the one that the server recorded for it."""
    if isinstance(error, dict) and isinstance(micros := error.pop("at_micros", None), int):
        error["at"] = moment(micros).isoformat()
    return error


def merged_meta(
    meta: str,
    notes: Sequence[str] | Literal[False],
    snoozed: int,
    interrupted: int,
    steps: Sequence[str] | Literal[False],
) -> dict[str, Any]:
    """Return the meta of a job, merged with the notes that were added since."""
    merged: dict[str, Any] = json.loads(meta)
    for note in notes or ():
        merged |= json.loads(note)
    if snoozed:
        merged["snoozed"] = snoozed
    if interrupted:
        merged["interrupted"] = interrupted
    if steps:
        merged["steps"] = {name: json.loads(value) for name, value in zip(steps[::2], steps[1::2], strict=True)}
    return merged


def _run(run: bytes | None) -> Sequence[Any]:
    if run is None:
        return _UNTOUCHED
    done = unpack(run)
    if type(done) is not list or len(done) < _LEAST_RUN or type(done[0]) is not int:
        raise ValueError("What has happened to the job so far is not told there.")
    return [*done[:_RUN_LENGTH], *_UNTOUCHED[len(done) :]]


def _changed(now: float | bool, first: float | None) -> datetime | None:
    """Return a time that a run may override (0: with none)."""
    at = first if now is False else now
    return moment(at) if at else None


def _noted(kind: str, attempt: int, at: float, who: str, message: str) -> dict[str, Any]:
    if kind == "DependencyFailed":  # the id of what the job waited for, and how that ended
        error = _noted("", attempt, at, "", f"Its dependency {who} ended as {message}.")
        del error["by"]
        return error | {"exception": f"djqueue.exceptions.{kind}", "stopped_by": int(who)}
    return {
        "attempt": attempt,
        "at": moment(at).isoformat(timespec="microseconds"),
        "worker" if kind == "WorkerLost" else "by": who,
        "exception": f"djqueue.exceptions.{kind}",
        "message": message,
        "traceback": "",
    }


def _request(by: str, reason: str, at: float) -> dict[str, Any]:
    return {"by": by, "reason": reason, "at": moment(at).isoformat(timespec="microseconds")}
