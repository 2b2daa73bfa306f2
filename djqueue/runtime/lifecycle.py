"""Begin and end executions: check that a claimed job may still start, and turn what its function did into one outcome."""

from __future__ import annotations

import logging
import time
from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from djqueue import hooks, telemetry
from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineUnavailable, UnreadableJob
from djqueue.jobs.compression import decode_arguments
from djqueue.jobs.encoding import encode_error
from djqueue.jobs.records import Ack, ClaimedJob
from djqueue.jobs.silence import DOUBTFUL_SECONDS
from djqueue.jobs.states import JobState
from djqueue.jobs.tracebacks import format_error
from djqueue.runtime import django_connections, process
from djqueue.runtime.acker import Acker
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.execution import Execution, Failure
from djqueue.runtime.observers import Observers
from djqueue.runtime.outcomes import ack_of, broken, handed_back, outcome_of, parked
from djqueue.runtime.timekeeper import Timekeeper
from djqueue.workflows.inputs import put_results

if TYPE_CHECKING:
    from djqueue.engines.protocol.flows import FlowStore

OUTSIDE_TASK = "Unexpected error while running job %d (outside the task itself)."


def was_lost(job: ClaimedJob) -> bool:
    """Return whether a worker that held the job was lost, and it is not known whether the job had started there."""
    return '"lost"' in job.meta


def needs_results(job: ClaimedJob) -> bool:
    """Return whether results of other jobs may have to be read before the job is called."""
    return '"put"' in job.meta


class _UnreadableArguments(UnreadableJob):
    """The job's own arguments are unreadable. A task may raise ``UnreadableJob`` too, and then fails with it."""


class Lifecycle:
    def __init__(
        self,
        worker: UUID,
        engine: Engine,
        acker: Acker,
        claims: ClaimBlock,
        observers: Observers,
        *,
        on_stuck: Callable[[Execution], None],
    ) -> None:
        """``on_stuck`` is called for an execution that its timeout could not end."""
        self._worker = worker
        self._engine = engine
        self._acker = acker
        self._claims = claims
        self._observers = observers
        self.running: dict[int, Execution] = {}
        """What runs now, by claim slot. The code that removes an execution from here decides its outcome."""
        self.timekeeper = Timekeeper(self.running, on_stuck=on_stuck)

    # Begin

    def begin(self, execution: Execution, *, noted: Future[bool] | None = None) -> bool:
        """Mark an execution as started; return False if it must not start. Its outcome is then on its way.

        ``noted``: the result of ``note_begun``, if it was called already.
        """
        job = execution.job
        try:
            if was_lost(job) and not (self.note_begun(job) if noted is None else noted.result()):
                self._acker.put(handed_back(job), execution.claim_slot)
                return False
            execution.start()
            if job.expires_at is not None and execution.started_at >= job.expires_at:  # both by the store's clock
                self._expire(execution)
                return False
            if self._claims.seconds_since_beat() > DOUBTFUL_SECONDS:
                # This process, or the store, was stopped after the fetch: another worker may have the job by now.
                self._acker.put(handed_back(job), execution.claim_slot)
                return False
            self._claims.begin(execution.claim_slot, execution.deadline)
            self.running[execution.claim_slot] = execution
            if execution.deadline is not None:
                self.timekeeper.watch(execution)
        except BaseException as error:
            self.running.pop(execution.claim_slot, None)
            hooks.report(error, OUTSIDE_TASK, job.id)
            self._acker.put(broken(job, self._worker, error, started=None), execution.claim_slot)
            return False
        return True

    def note_begun(self, job: ClaimedJob) -> bool:
        """Record in the store that a job starts which was lost with a worker before: if it is lost again, its attempt is spent.

        Return whether the claim is still valid.
        """
        if job.is_taken:
            return True
        try:
            with self._engine.open_registrar() as own:
                return job.id in own.note_begun({job.id: job.claim})
        except EngineUnavailable:
            return False

    def arguments(self, execution: Execution) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments for the task's function."""
        job = execution.job
        try:
            args, kwargs = decode_arguments(job.args, job.kwargs)
        except (ValueError, TypeError, RecursionError) as error:
            raise _UnreadableArguments(str(error)) from error
        if needs_results(job):
            put_results(cast("FlowStore", self._engine), job.id, job.meta, args, kwargs)
        if execution.task.takes_context:
            args.insert(0, self._observers.context(execution))
        return args, kwargs

    def _expire(self, execution: Execution) -> None:
        job = execution.job
        error = TimeoutError(f"The job expired at {job.expires_at}, before it started.")
        failure = Failure(error, format_error(error))
        entry = encode_error(error, attempt=job.attempt, worker=self._worker, traceback=failure.traceback)
        ack = ack_of(job, JobState.CANCELLED, None, time.monotonic(), None, entry, is_spent=False)
        self._acker.put(ack, execution.claim_slot)
        if self._observers.want_finish(failure):
            self._observers.finished(execution, ack, failure)

    # End

    def end(self, execution: Execution, result: str | None, error: BaseException | None) -> Callable[[], None] | None:
        """Send the outcome to the store; return a function that reports it to observers, if that is to happen now."""
        process.end_copy(error)
        job, claim_slot = execution.job, execution.claim_slot
        failure: Failure | None = None
        if error is None:
            ack = ack_of(job, JobState.COMPLETED, execution.started, time.monotonic(), result)
            if execution.is_overdue:
                telemetry.emit("djqueue.job.late", logging.WARNING, job=job.id, task=job.task)
        else:
            ack, failure = self.failure(execution, error)
        is_wanted = self._observers.want_finish(failure)
        if self.running.pop(claim_slot, None) is None:
            return None  # handed back while it ran; another worker owns the job now
        if not is_wanted:
            self._acker.put(ack, claim_slot)
            return None
        # The outcome is decided. An observer may fail, but changes nothing.
        report = self._observers.finished if error is None else self._report_failure
        announce = partial(report, execution, ack, failure)
        if self._claims.seconds_since_beat() < DOUBTFUL_SECONDS:
            self._acker.put(ack, claim_slot)
            return announce
        # This worker was away for long, and the job may have ended elsewhere: report an outcome only if the store accepts it.
        self._acker.put(ack, claim_slot, when_accepted=announce)
        return None

    def end_and_report(self, execution: Execution, result: str | None, error: BaseException | None) -> None:
        """Send the outcome to the store and report it to observers in this thread."""
        if (announce := self.end(execution, result, error)) is not None:
            announce()

    def _report_failure(self, execution: Execution, ack: Ack, failure: Failure | None) -> None:
        """Report a task that raised. What receivers write must not land in a transaction that the task left open."""
        give_back = partial(django_connections.give_back, is_clean=False)
        hooks.call(give_back, None, "Unexpected error while giving back the connections of failed job %d.", ack.id)
        self._observers.finished(execution, ack, failure)

    def end_transactional(self, execution: Execution, ack: Ack) -> None:
        """Record an outcome that the task's own transaction has stored."""
        if self.running.pop(execution.claim_slot, None) is None:
            return  # the worker handed it back, and the acker releases its claim slot
        self._acker.finalize_elsewhere(execution.claim_slot)
        if self._observers.want_finish(None):
            self._observers.finished(execution, ack, None)

    def end_if_accepted(self, execution: Execution, error: BaseException) -> None:
        """Send a failure to the store, and report it to observers only if the store accepts it."""
        ack, failure = self.failure(execution, error)
        if self.running.pop(execution.claim_slot, None) is not None:
            is_wanted = self._observers.want_finish(failure)
            report = partial(self._report_failure, execution, ack, failure) if is_wanted else None
            self._acker.put(ack, execution.claim_slot, when_accepted=report)

    def end_broken(self, execution: Execution, error: BaseException) -> None:
        """Give an execution that failed outside its task an outcome, unless it has one."""
        process.end_copy(error)
        hooks.report(error, OUTSIDE_TASK, execution.job.id)
        if self.running.pop(execution.claim_slot, None) is not None:
            ack = broken(execution.job, self._worker, error, started=execution.started)
            self._acker.put(ack, execution.claim_slot)

    def take_over(self, execution: Execution) -> bool:
        """Let the caller decide the outcome of what still runs; return False if it has an outcome already.

        Whatever the task does from now on is ignored.
        """
        return self.running.pop(execution.claim_slot, None) is not None

    def failure(self, execution: Execution, error: BaseException) -> tuple[Ack, Failure | None]:
        """Return the ack of an execution that raised, and the failure to report; None for a snooze."""
        job = execution.job
        if isinstance(error, _UnreadableArguments):
            telemetry.emit("djqueue.job.unreadable", logging.ERROR, job=job.id, task=job.task, error=str(error))
            return parked(job, error), None
        try:
            error = execution.interpret(error)
        except BaseException as problem:  # an exception that cannot even be asked for its class
            hooks.report(problem, "Job %d raised an exception that cannot be examined.", job.id)
        outcome = outcome_of(error, job, execution.task)
        entry = failure = None
        if outcome.is_error:
            failure = Failure(error, "" if execution.was_cancelled_in_await(error) else format_error(error))
            entry = encode_error(
                error, attempt=job.attempt, worker=self._worker, traceback=failure.traceback, problem=outcome.problem
            )
        ack = ack_of(
            *(job, outcome.state, execution.started, time.monotonic(), None, entry),
            delay=outcome.delay,
            is_spent=outcome.is_spent,
        )
        return ack, failure
