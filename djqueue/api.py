"""Control jobs and queues from code: what the admin's buttons and ``manage.py queuectl`` call.

::

    from djqueue import api

    api.cancel(result, by=request.user, reason="The order was withdrawn.")     # a TaskResult or an id
    api.retry([17, 18])                                                        # several
    api.discard(api.JobFilter(queue="mail", older_than=timedelta(days=2)))     # all that match, in batches
    api.pause("mail", reason="The provider is down.")

For one job the functions return its outcome (``Controlled``), for several a list of outcomes, for a filter counts
(``Report``). They do not raise if a job is in the wrong state or does not exist: the outcome contains the reason.

The functions join the caller's transaction. Without one, each batch is a separate transaction, so other transactions do not
wait long for a lock; if a later batch fails, the earlier batches stay committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from asgiref.sync import sync_to_async

from djqueue import compat, stores
from djqueue.engines.protocol import Engine
from djqueue.jobs.compression import readable
from djqueue.jobs.control import Controlled, ControlOutcome
from djqueue.jobs.encoding import is_storable
from djqueue.jobs.lists import Found, JobFilter
from djqueue.jobs.moments import as_django
from djqueue.jobs.names import invalid_queue_name, is_queue_name, job_id
from djqueue.jobs.records import Job
from djqueue.jobs.states import FINAL_STATES, LIVE_STATES, JobState

if TYPE_CHECKING:
    OneJob = int | str | compat.TaskResult[..., Any]
    SomeJobs = OneJob | Iterable[OneJob] | JobFilter

DEFAULT_ALIAS = compat.DEFAULT_TASK_BACKEND_ALIAS
BATCH = 1000
COUNT_LIMIT = 1_000_000
_EXAMPLES = 5
_TIMES = ("attempted_at", "inserted_at", "scheduled_at", "ready_at", "expires_at", "started_at", "finished_at")
_WAITING = tuple(state for state in LIVE_STATES if state is not JobState.EXECUTING)

CONTROLLABLE: Mapping[str, tuple[JobState, ...]] = {
    "cancel": LIVE_STATES,
    "retry": (*FINAL_STATES, JobState.SCHEDULED, JobState.RETRYABLE),
    "discard": _WAITING,
    "delete": (*FINAL_STATES, *_WAITING),
}
"""The states in which each verb can change a job."""


@dataclass(slots=True)
class Report:
    """The outcome of a call for many jobs, as counts."""

    outcomes: dict[ControlOutcome, int] = field(default_factory=dict)
    """How many jobs were cancelled, requested to end, retried, discarded, deleted or skipped."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Reason why a job was skipped → number of jobs."""
    examples: dict[str, list[int]] = field(default_factory=dict)
    """The same reasons → ids of the first few jobs."""

    @property
    def done(self) -> int:
        """The number of jobs that were changed."""
        return sum(count for outcome, count in self.outcomes.items() if outcome is not ControlOutcome.SKIPPED)

    def add(self, controlled: Iterable[Controlled]) -> None:
        for one in controlled:
            self.outcomes[one.outcome] = self.outcomes.get(one.outcome, 0) + 1
            if not one.is_done:
                # Reasons are counted by kind, because the job that holds a key differs for each.
                reason = one.reason if one.held_by is None else "unique key held by a live job"
                self.skipped[reason] = self.skipped.get(reason, 0) + 1
                if len(examples := self.examples.setdefault(reason, [])) < _EXAMPLES:
                    examples.append(one.id)


def get_job(job: OneJob, *, using: str | None = None) -> Job | None:
    """Return the record of a job, live or finished, or None if it does not exist."""
    found = stores.store(using or _alias(job)).engine.get(_id(job))
    if found is None:
        return None
    args, kwargs = readable(found.args, found.kwargs)
    times = {name: as_django(getattr(found, name)) for name in _TIMES}
    return replace(found, args=args, kwargs=kwargs, **times)


@overload
def cancel(  # type: ignore[overload-overlap]  # a string is an iterable of strings
    jobs: OneJob, *, by: object = "", reason: str = "", using: str | None = None
) -> Controlled: ...
@overload
def cancel(jobs: JobFilter, *, by: object = "", reason: str = "", using: str | None = None) -> Report: ...
@overload
def cancel(
    jobs: Iterable[OneJob], *, by: object = "", reason: str = "", using: str | None = None
) -> list[Controlled]: ...
def cancel(
    jobs: SomeJobs, *, by: object = "", reason: str = "", using: str | None = None
) -> Controlled | list[Controlled] | Report:
    """Cancel jobs: waiting jobs end at once, executing ones are asked to stop (outcome ``requested``)."""
    return _control("cancel", jobs, using, by=_name(by), reason=reason)


@overload
def retry(  # type: ignore[overload-overlap]  # a string is an iterable of strings
    jobs: OneJob, *, using: str | None = None
) -> Controlled: ...
@overload
def retry(jobs: JobFilter, *, using: str | None = None) -> Report: ...
@overload
def retry(jobs: Iterable[OneJob], *, using: str | None = None) -> list[Controlled]: ...
def retry(jobs: SomeJobs, *, using: str | None = None) -> Controlled | list[Controlled] | Report:
    """Run finished jobs again, and scheduled or retryable ones now. ``max_attempts`` is raised if no attempt is left."""
    return _control("retry", jobs, using)


@overload
def discard(  # type: ignore[overload-overlap]  # a string is an iterable of strings
    jobs: OneJob, *, by: object = "", reason: str = "", using: str | None = None
) -> Controlled: ...
@overload
def discard(jobs: JobFilter, *, by: object = "", reason: str = "", using: str | None = None) -> Report: ...
@overload
def discard(
    jobs: Iterable[OneJob], *, by: object = "", reason: str = "", using: str | None = None
) -> list[Controlled]: ...
def discard(
    jobs: SomeJobs, *, by: object = "", reason: str = "", using: str | None = None
) -> Controlled | list[Controlled] | Report:
    """Discard waiting jobs."""
    return _control("discard", jobs, using, by=_name(by), reason=reason)


@overload
def delete(  # type: ignore[overload-overlap]  # a string is an iterable of strings
    jobs: OneJob, *, using: str | None = None
) -> Controlled: ...
@overload
def delete(jobs: JobFilter, *, using: str | None = None) -> Report: ...
@overload
def delete(jobs: Iterable[OneJob], *, using: str | None = None) -> list[Controlled]: ...
def delete(jobs: SomeJobs, *, using: str | None = None) -> Controlled | list[Controlled] | Report:
    """Delete finished and waiting jobs, but never an executing one."""
    return _control("delete", jobs, using)


def count(verb: str, jobs: JobFilter, *, using: str = DEFAULT_ALIAS, limit: int = COUNT_LIMIT) -> Found:
    """Count the jobs of a filter that a verb (``cancel``, ``retry``, ``discard``, ``delete``) would change."""
    return stores.store(using).engine.count(_controllable(verb, jobs), limit=limit)


def pause(queue: str, *, by: object = "", reason: str = "", using: str = DEFAULT_ALIAS) -> bool:
    """Start no more jobs of a queue until ``resume``; executing jobs continue. Return False if it is already paused."""
    return stores.store(using).engine.pause(_queue_name(queue), by=_name(by), reason=reason)


def resume(queue: str, *, using: str = DEFAULT_ALIAS) -> bool:
    """Resume a paused queue. Return False if it is not paused."""
    return stores.store(using).engine.resume(_queue_name(queue))


def in_batches(ids: Iterable[int], act: Callable[[list[int]], list[Controlled]]) -> Iterator[Controlled]:
    """Act on any number of jobs, a batch at a time."""
    batch: list[int] = []
    for id in ids:
        batch.append(id)
        if len(batch) == BATCH:
            yield from act(batch)
            batch = []
    if batch:
        yield from act(batch)


def _control(verb: str, jobs: SomeJobs, using: str | None, **values: str) -> Controlled | list[Controlled] | Report:
    if isinstance(jobs, JobFilter):
        engine = stores.store(using or DEFAULT_ALIAS).engine
        return _control_filtered(engine, verb, _controllable(verb, jobs), values)
    if isinstance(jobs, int | str | compat.TaskResult):
        [controlled] = getattr(stores.store(using or _alias(jobs)).engine, verb)([_id(jobs)], **values)
        return controlled  # type: ignore[no-any-return]
    several = list(jobs)
    aliases = {using or _alias(job) for job in several}
    if len(aliases) > 1:
        raise ValueError(
            f"Invalid jobs: they belong to several backends ({', '.join(sorted(aliases))}). Use one call per backend."
        )
    if not several:
        return []
    act = getattr(stores.store(aliases.pop()).engine, verb)
    # All ids are parsed first, so that an invalid one cannot leave half of the jobs changed.
    return list(in_batches([_id(job) for job in several], lambda batch: act(batch, **values)))


def _control_filtered(engine: Engine, verb: str, jobs: JobFilter, values: Mapping[str, str]) -> Report:
    report = Report()
    after, last = 0, engine.count(jobs, limit=1).last
    while ids := engine.find(jobs, after=after, last=last, limit=BATCH):
        # The states are given again, so that jobs which have left them since are not changed.
        report.add(getattr(engine, verb)(ids, only=jobs.states, **values))
        after = ids[-1]
    return report


def _controllable(verb: str, jobs: JobFilter) -> JobFilter:
    """Narrow a filter to the states in which the verb can change a job."""
    for name in ("queue", "task", "task_prefix"):
        text = getattr(jobs, name)
        if text is not None and not (isinstance(text, str) and is_storable(text)):
            raise ValueError(f"Invalid {name} {text!r:.100}: no job can have it.")
    states = tuple(JobState(state) for state in jobs.states or ())
    if wrong := [state.value for state in states if state not in CONTROLLABLE[verb]]:
        can = ", ".join(state.value for state in CONTROLLABLE[verb])
        raise ValueError(f"Cannot {verb} {' or '.join(wrong)} jobs. Use {verb} for jobs that are {can}.")
    return replace(jobs, states=states or CONTROLLABLE[verb])


def _id(job: OneJob) -> int:
    value = job.id if isinstance(job, compat.TaskResult) else job
    if (id := job_id(value)) is None:
        raise ValueError(f"Invalid job id {value!r}: use a whole number or a TaskResult.")
    return id


def _alias(job: OneJob) -> str:
    return job.backend if isinstance(job, compat.TaskResult) else DEFAULT_ALIAS


def _name(by: object) -> str:
    """Return the name of a user, given as a name or as an object of Django's user model."""
    return str(by.get_username()) if hasattr(by, "get_username") else str(by)


def _queue_name(queue: str) -> str:
    if not is_queue_name(queue):
        raise ValueError(invalid_queue_name(queue))
    return queue


aget_job = sync_to_async(get_job, thread_sensitive=True)
acancel = sync_to_async(cancel, thread_sensitive=True)
aretry = sync_to_async(retry, thread_sensitive=True)
adiscard = sync_to_async(discard, thread_sensitive=True)
adelete = sync_to_async(delete, thread_sensitive=True)
apause = sync_to_async(pause, thread_sensitive=True)
aresume = sync_to_async(resume, thread_sensitive=True)
