"""What djqueue raises, and what a task raises to control its own job.

::

    DjqueueError
    ├── InvalidOptions          settings that cannot work (also a system check)
    ├── ForeignBackend          this entry of TASKS names a backend that is not one of djqueue's
    ├── InvalidJob              enqueue refuses this job; nothing was stored
    │   ├── InvalidArguments    the task does not take the arguments, or they cannot be stored as JSON
    │   ├── JobTooLarge         the arguments are larger than max_args_bytes
    │   └── InvalidWorkflow     a cycle, an unknown name, a missing result; the message has the path
    ├── DuplicateJob            a live or recent job holds the unique key, and the task says to raise
    ├── InvalidResult           what a task returned cannot be stored; the attempt fails
    │   └── ResultTooLarge      it is larger than max_result_bytes
    ├── UnknownTask             no task of this name is registered
    ├── InvalidCron             this entry of the crontab cannot work; nothing was stored
    ├── UnknownCron             the crontab has no entry of this name
    ├── InvalidPosition         this is not a position in a list of jobs
    ├── EngineUnavailable       the store did not answer; try again later
    │   ├── EngineBusy          another transaction holds a lock that is needed; maintenance does not wait for it
    │   ├── EngineDenied        it denies access: the settings have to be corrected
    │   └── BulkInterrupted     it went away in the middle of enqueue_many; some of the jobs are stored
    ├── EngineRefused           the store answered that it does not take this value
    ├── TaskTimeout             the task ran longer than its timeout
    ├── UnreadableJob           the stored job was edited and cannot be read; it is put aside
    ├── DependencyFailed        recorded for a job that was cancelled because of how another job ended
    ├── StaleClaim              another worker has the job that runs here; nothing it stores is accepted
    └── WorkerLost              recorded for a job whose worker died

    JobSignal (raised by a task, never an error of djqueue)
    ├── Retry(delay)            fail this attempt and try again after the delay
    ├── Snooze(delay)           run again later; no attempt is spent
    ├── Cancel(reason)          end as cancelled
    └── Discard(reason)         end as discarded, no further attempt
        └── MissingResult       raised by djqueue: a result that the job needs does not exist any more
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta


class DjqueueError(Exception):
    """Anything that djqueue itself found wrong."""


class InvalidOptions(DjqueueError):
    """The OPTIONS of a djqueue backend in TASKS cannot work. The message names the key and what it takes."""


class ForeignBackend(DjqueueError):
    """This entry of TASKS does not name one of djqueue's backends, so ``djqueue.api`` and ``djqueue.crontab`` cannot use it."""


class InvalidJob(DjqueueError, ValueError):
    """This job cannot be enqueued. Nothing was stored."""


class InvalidArguments(InvalidJob, TypeError):
    """The task cannot be called with these arguments, or they cannot be stored as JSON. Pass plain values, for example a primary
    key rather than a model."""


class JobTooLarge(InvalidJob):
    """The arguments are too large for a row. Store the data elsewhere and pass a reference to it."""


class InvalidWorkflow(InvalidJob):
    """This workflow, chain, group or batch cannot work. Nothing was stored; the message names the job and the rule."""


class DuplicateJob(DjqueueError):
    """Another job holds this one's unique key, and ``on_conflict="raise"`` is set. Nothing was stored.

    ``job_id`` is the id of the job that holds the key.
    """

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id

    def __reduce__(self) -> tuple[type[DuplicateJob], tuple[str, str]]:
        return type(self), (str(self), self.job_id)


class InvalidResult(DjqueueError, TypeError, ValueError):
    """What the task returned cannot be stored as JSON. Return plain values, or nothing."""


class ResultTooLarge(InvalidResult):
    """What the task returned is too large for a row. Store it elsewhere and return a reference to it."""


class UnknownTask(DjqueueError, LookupError):
    """No task of this name is registered. Is its app in INSTALLED_APPS, and is the task in the app's tasks.py?"""


class InvalidCron(DjqueueError, ValueError):
    """This entry of the crontab cannot work. Nothing was stored; the message says what to correct."""


class InvalidPosition(DjqueueError, ValueError):
    """This is not a position in a list of jobs. Use one that an earlier page returned."""


class UnknownCron(DjqueueError, LookupError):
    """The crontab has no entry of this name. ``manage.py cron list`` shows them all."""


class EngineUnavailable(DjqueueError):
    """The database or server did not answer. Nothing is known to be wrong with the job; try again later."""

    is_undone = False
    """Whether it is certain that nothing was done, because no connection could be made."""

    accepted: frozenset[int] = frozenset()
    """Of outcomes that are stored in several steps: the ids of those that were accepted before the store went away."""


class EngineBusy(EngineUnavailable):
    """Another transaction holds a lock that is needed. Maintenance does not wait for it and tries again later."""


class EngineDenied(EngineUnavailable):
    """The server denies access or a necessary permission: the message says whether url, password or permissions are wrong."""


class BulkInterrupted(EngineUnavailable):
    """The server went away in the middle of an ``enqueue_many`` outside of a transaction, on Redis. ``ids`` are the jobs that are
    stored; those of the batch that was under way may be, too."""

    def __init__(self, message: str, ids: Sequence[str]) -> None:
        super().__init__(message)
        self.ids = ids

    def __reduce__(self) -> tuple[type[BulkInterrupted], tuple[str, Sequence[str]]]:
        return type(self), (str(self), self.ids)


class EngineRefused(DjqueueError):
    """The store does not take this value or statement. The message says what it found wrong."""


class TaskTimeout(DjqueueError):
    """The task ran longer than its timeout."""


class UnreadableJob(DjqueueError):
    """The stored job was edited and cannot be read. It is put aside; correct or delete it."""


class WorkerLost(DjqueueError):
    """The worker that ran this job died or went silent before it could record an outcome."""


class DependencyFailed(DjqueueError):
    """The job was cancelled before it began: a job or group that it waited for did not end as it has to. To revive the job, retry
    the other one."""


class StaleClaim(DjqueueError):
    """Another worker has the job that still runs here. Nothing that it stores is accepted any more: let the task end."""


class JobSignal(Exception):
    """Base of what a task raises to decide about its own job."""


_LONGEST = timedelta(days=365)
"""As for a ``backoff``: no wait is longer."""


def _as_timedelta(delay: timedelta | float) -> timedelta:
    """Cap a delay as ``backoff`` does. An invalid delay is kept: when it is read, it is logged and the default is used.

    These exceptions are often made while another one is handled; one that fails here would take its place.
    """
    try:
        wait = delay if isinstance(delay, timedelta) else timedelta(seconds=min(max(delay, -31_536_000), 31_536_000))
        return min(max(wait, -_LONGEST), _LONGEST)
    except (TypeError, ValueError):
        return delay  # type: ignore[return-value]


class Retry(JobSignal):
    """Fail this attempt and run the job again after ``delay`` (a timedelta or seconds; None: the task's backoff)."""

    delay: timedelta | None = None  # for a subclass whose __init__ does not call this one

    def __init__(self, delay: timedelta | float | None = None, reason: str = "") -> None:
        super().__init__(reason or "The task asked for a retry.")
        self.delay = None if delay is None else _as_timedelta(delay)


class Snooze(JobSignal):
    """Run the job again after ``delay`` (a timedelta or seconds) without spending an attempt."""

    def __init__(self, delay: timedelta | float) -> None:
        self.delay = _as_timedelta(delay)
        super().__init__(f"The task snoozed itself for {self.delay}.")


class Cancel(JobSignal):
    """End the job as cancelled, with a reason that the admin shows."""

    def __init__(self, reason: str = "The task cancelled itself.") -> None:
        super().__init__(reason)


class Discard(JobSignal):
    """End the job as discarded although attempts are left, with a reason that the admin shows."""

    def __init__(self, reason: str = "The task discarded itself.") -> None:
        super().__init__(reason)


class MissingResult(Discard):
    """The job cannot run: the result of a job that it waited for was deleted."""
