"""Call the function of a claimed job and turn whatever happens into an ack.

The only place that catches everything, because user code runs here. Nothing a task raises reaches another job: not
SystemExit, not a stray CancelledError, not an exception that fails when it is printed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from functools import partial
from typing import Any
from uuid import UUID

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import DatabaseError, InterfaceError

from djqueue import hooks, propagation, telemetry
from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineUnavailable, UnreadableJob
from djqueue.jobs.compression import decode_arguments
from djqueue.jobs.encoding import encode_error, encode_result
from djqueue.jobs.records import Ack, ClaimedJob
from djqueue.jobs.states import JobState
from djqueue.jobs.tracebacks import format_error
from djqueue.runtime import django_connections, process
from djqueue.runtime.acker import Acker
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.event_loop import EventLoop
from djqueue.runtime.lanes import Execution, Lane
from djqueue.runtime.observers import Observers
from djqueue.runtime.outcomes import broken, for_job, outcome_of, parked
from djqueue.runtime.runs import Failure, Run
from djqueue.runtime.timekeeper import Timekeeper

DOUBTFUL_SECONDS = 8.0
"""Without a beat for so long, others may soon have taken this worker for dead, and its jobs."""

_BURST = 100
"""So many async jobs are started in a row before the event loop goes round."""

# A task that starts at once, and not when the loop comes round, saves each job a fifth of its time on the loop.
if sys.version_info >= (3, 12):
    _task: Callable[..., asyncio.Task[Any]] = partial(asyncio.Task, eager_start=True)
else:
    _task = asyncio.Task


_AROUND = "Unexpected error while running job %d (outside the task itself)."


def _was_lost(job: ClaimedJob) -> bool:
    """Whether a worker that held it was lost, and nobody knew if it had begun."""
    return '"lost"' in job.meta


class _UnreadableArguments(UnreadableJob):
    """The arguments of the job itself. A task may raise ``UnreadableJob`` as well, and fails with it."""


class _StaleClaim(Exception):
    """The job is no longer ours; roll back."""


class Executor:
    """Threads for sync jobs, one event loop for async ones."""

    def __init__(
        self,
        worker: UUID,
        engine: Engine,
        acker: Acker,
        claims: ClaimBlock,
        observers: Observers,
        *,
        max_result_bytes: int,
        on_stuck: Callable[[Run], None],
    ) -> None:
        """``on_stuck`` is called for a run that its timeout could not end."""
        self._worker = worker
        self._engine = engine
        self._acker = acker
        self._claims = claims
        self._observers = observers
        self._max_result_bytes = max_result_bytes
        self.event_loop = EventLoop()
        self._due: deque[tuple[Lane, Execution]] = deque()
        """Async jobs that have a slot and are about to start. Like what follows, it belongs to the loop's thread."""
        self._is_starting = False
        self.running: dict[int, Run] = {}
        """What runs at this moment, by its place in the claim block."""
        self.timekeeper = Timekeeper(self.running, on_stuck=on_stuck)

    # Sync

    def start_thread(self, lane: Lane) -> None:
        threading.Thread(target=self._serve, args=(lane,), name="djqueue-job", daemon=True).start()

    def _serve(self, lane: Lane) -> None:
        try:
            execution = lane.first_for_thread(self._release_connections)
            while execution is not None:
                try:
                    seconds = self._execute(execution)
                except BaseException as error:
                    # Not the task's: its database router, for example. The slot must not go with it, nor the outcome.
                    self._conclude_broken(execution, error)
                    settle = partial(django_connections.settle, is_clean=False)
                    hooks.call(settle, None, "The connections of a broken job's thread could not be given back.")
                    seconds = 0.0
                execution = lane.next_for_thread(execution.place, seconds, self._release_connections)
        finally:
            # A thread that ends with an exception would write a traceback of its own beside the log.
            hooks.call(django_connections.close_all, None, "The connections of a thread that ends could not be closed.")

    @staticmethod
    def _release_connections() -> None:
        hooks.call(django_connections.release, None, "An idle thread's connections could not be closed.")

    def _execute(self, execution: Execution) -> float:
        run = self._begin(execution)
        if run is None:
            django_connections.settle(is_clean=True)  # receivers of signals may have used them
            return 0.0
        job, task = execution.job, execution.task
        if task.transactional:
            self._execute_transactional(run)
            django_connections.settle(is_clean=True)
            return time.monotonic() - run.started
        is_clean = False
        try:
            args, kwargs = self._arguments(run)
            if self._observers.want_start:
                self._observers.started(run)
            if run.deadline is not None or "context" in job.meta:
                value = copy_context().run(self._call_with_surroundings, run, args, kwargs)
            else:
                # A context of its own, so that nothing a task leaves in a context variable reaches the next job.
                value = copy_context().run(task.func, *args, **kwargs)
            result = encode_result(value, self._max_result_bytes) if value is not None else None
            django_connections.require_no_open_transaction()
        except BaseException as error:
            self._fail(run, error)
        else:
            is_clean = True
            self._succeed(run, result)
        django_connections.settle(is_clean=is_clean)
        return time.monotonic() - run.started

    @staticmethod
    def _call_with_surroundings(run: Run, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with propagation.restored(run.execution.job.meta):
            if run.deadline is None:
                return run.execution.task.func(*args, **kwargs)
            with django_connections.cancellable() as run.statements:
                return run.execution.task.func(*args, **kwargs)

    def _execute_transactional(self, run: Run) -> None:
        """Commit what the task writes and its completion together.

        The ack is the last statement of the task's own transaction. When it is refused, the job belongs to somebody
        else by now, and everything is rolled back. When the commit fails, nobody knows what became of it until the
        store is asked.
        """
        job = run.execution.job
        is_acknowledged = False
        try:
            args, kwargs = self._arguments(run)
            if self._observers.want_start:
                self._observers.started(run)  # before the transaction: a receiver whose SQL fails would abort it
            with self._engine.transaction() as alias:
                try:
                    value = copy_context().run(self._call_with_surroundings, run, args, kwargs)
                except BaseException as error:
                    process.end_copy(error)  # before the transaction ends: it is the worker's
                    raise
                process.end_copy(None)
                result = encode_result(value, self._max_result_bytes) if value is not None else None
                django_connections.require_no_open_transaction(besides=alias)
                ack = Ack(job.id, job.claim, JobState.COMPLETED, run.started, time.monotonic(), result)
                if not self._engine.ack_here(for_job(ack, job)):
                    raise _StaleClaim
                is_acknowledged = True
        except _StaleClaim:
            telemetry.emit("djqueue.ack.stale", logging.WARNING, job=job.id, claim=job.claim, state="completed")
            if self.running.pop(run.execution.place, None) is not None:  # else the acker releases the place
                self._acker.settle_elsewhere(run.execution.place, accepted=False)
            return
        except BaseException as error:
            if not (is_acknowledged and self._was_committed(job)):
                self._fail(run, error)
                return
            # A callback of transaction.on_commit failed, or the answer to the commit was lost on its way.
            telemetry.emit("djqueue.job.after_commit", logging.ERROR, exc_info=error, job=job.id, task=job.task)
        if self.running.pop(run.execution.place, None) is not None:
            self._acker.settle_elsewhere(run.execution.place, accepted=True)
            if self._observers.want_finish(None):
                self._observers.finished(run, ack, None)

    def _was_committed(self, job: ClaimedJob) -> bool:
        """Ask the store, for as long as it takes, whether the job was completed under this claim."""
        pause = 0.1
        while True:
            django_connections.close_all()
            try:
                stored = self._engine.get(job.id)
            except (EngineUnavailable, DatabaseError, InterfaceError):
                time.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                return stored is not None and stored.claim == job.claim and stored.state is JobState.COMPLETED

    # Async

    def start_async(self, lane: Lane, executions: list[Execution]) -> None:
        """Start jobs on the event loop, from any thread."""
        self.event_loop.call(self._start_tasks, lane, executions)

    def _start_tasks(self, lane: Lane, executions: Iterable[Execution]) -> None:
        """Start jobs, and those that may start because one of them is over already; on the event loop."""
        self._due.extend([(lane, execution) for execution in executions])
        if self._is_starting:
            return  # called by one of them, which ended before it had to wait for anything: the loop below goes on
        self._is_starting = True
        try:
            for _ in range(_BURST):
                if not self._due:
                    return
                self._start_task(*self._due.popleft())
        finally:
            self._is_starting = False
            if self._due:  # many that never wait: others want to go on too
                asyncio.get_running_loop().call_soon(self._start_tasks, lane, ())

    def _start_task(self, lane: Lane, execution: Execution) -> None:
        process.end_copy(None)
        if _was_lost(execution.job):
            # The store is asked in a thread: the loop must not wait for it, and Django lets nobody connect there.
            noted = asyncio.get_running_loop().run_in_executor(None, self._note_begun, execution.job)
            noted.add_done_callback(partial(self._start_noted, lane, execution))
        else:
            self._start_run(lane, execution, self._begin(execution))

    def _start_noted(self, lane: Lane, execution: Execution, noted: asyncio.Future[bool]) -> None:
        self._start_run(lane, execution, self._begin(execution, noted))
        self._start_tasks(lane, ())

    def _start_run(self, lane: Lane, execution: Execution, run: Run | None) -> None:
        if run is None:
            self._due.extend([(lane, following) for following in lane.finish_async(execution.place, 0.0)])
        else:
            # A context of its own: it is most often started from within the task of another job.
            _task(self._execute_async(lane, run), loop=asyncio.get_running_loop(), context=Context())

    async def _execute_async(self, lane: Lane, run: Run) -> None:
        run.future = asyncio.current_task()  # for who wants it cancelled; and the loop itself keeps no task alive
        try:
            # Sync code that the task awaits gets a thread of its own, as in a request under ASGI, and with it
            # connections that no other job shares.
            async with ThreadSensitiveContext() as context:
                announce = None
                try:
                    announce = await self._call_async(run, context)
                    if announce is not None and self._observers.signals_finish:
                        await sync_to_async(
                            announce
                        )()  # receivers may use the database, which they may not on the loop
                    elif announce is not None:
                        announce()
                finally:
                    # It holds what the task raised, whose traceback holds this frame: a cycle, with all that the task
                    # had in memory, which would stay until the garbage collector comes by.
                    announce = None
                    if context in SyncToAsync.context_to_thread_executor:
                        await sync_to_async(django_connections.close_all)()
        except BaseException as error:
            self._conclude_broken(run.execution, error)
        finally:
            self._start_tasks(lane, lane.finish_async(run.execution.place, time.monotonic() - run.started))

    async def _call_async(self, run: Run, context: ThreadSensitiveContext) -> Callable[[], None] | None:
        job, task = run.execution.job, run.execution.task
        try:
            args, kwargs = self._arguments(run)
            if self._observers.want_start:
                await sync_to_async(self._observers.started)(run)
            if run.deadline is not None or "context" in job.meta:
                value = await self._await_with_surroundings(run, context, args, kwargs)
            else:
                value = await task.func(*args, **kwargs)
            result = encode_result(value, self._max_result_bytes) if value is not None else None
            if context in SyncToAsync.context_to_thread_executor:
                await sync_to_async(django_connections.require_no_open_transaction)()
        except BaseException as error:
            # CancelledError, SystemExit and the like too: a task that raises them fails, the loop goes on.
            return self._end(run, None, error)
        return self._end(run, result, None)

    @staticmethod
    async def _await_with_surroundings(
        run: Run, context: ThreadSensitiveContext, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        with propagation.restored(run.execution.job.meta), django_connections.cancellable() as run.statements:
            try:
                return await run.execution.task.func(*args, **kwargs)
            finally:
                if run.statements.is_ending and context in SyncToAsync.context_to_thread_executor:
                    # The task awaits no more what runs in its thread: wait for it, until it is cancelled.
                    await sync_to_async(threading.get_ident)()

    # Both

    def _begin(self, execution: Execution, noted: asyncio.Future[bool] | None = None) -> Run | None:
        """Note that the function is about to be called; None if its time is over, or the claim perhaps.

        ``noted``: what ``_note_begun`` has answered, if it was asked already.
        """
        job = execution.job
        try:
            if _was_lost(job) and not (self._note_begun(job) if noted is None else noted.result()):
                self._acker.put(
                    for_job(Ack(job.id, job.claim, JobState.AVAILABLE, is_spent=False), job), execution.place
                )
                return None
            run = Run(execution)
            if job.expires_at is not None and run.started_at >= job.expires_at:  # both by the store's clock
                self._expire(run)
                return None
            if self._claims.seconds_since_beat() > DOUBTFUL_SECONDS:
                # It was claimed before this process was stopped, or the store went away, and may be somebody else's by now.
                ack = Ack(job.id, job.claim, JobState.AVAILABLE, is_spent=False)
                self._acker.put(for_job(ack, job), execution.place)
                return None
            self._claims.begin(execution.place, run.deadline)
            self.running[execution.place] = run
            if run.deadline is not None:
                self.timekeeper.watch(run)
        except BaseException as error:
            self.running.pop(execution.place, None)
            hooks.report(error, _AROUND, job.id)
            self._acker.put(broken(job, self._worker, error, started=None), execution.place)
            return None
        return run

    def _note_begun(self, job: ClaimedJob) -> bool:
        """Note the start of a job that was lost with its worker before: should it end this one too, it has spent its attempt."""
        if job.is_taken:
            return True
        try:
            with self._engine.open_registrar() as own:
                return job.id in own.note_begun({job.id: job.claim})
        except EngineUnavailable:
            return False

    def _expire(self, run: Run) -> None:
        job = run.execution.job
        error = TimeoutError(f"It had not begun by {job.expires_at}, when it expired.")
        failure = Failure(error, format_error(error))
        entry = encode_error(error, attempt=job.attempt, worker=self._worker, traceback=failure.traceback)
        ack = Ack(job.id, job.claim, JobState.CANCELLED, None, time.monotonic(), None, entry, is_spent=False)
        self._acker.put(for_job(ack, job), run.execution.place)
        if self._observers.want_finish(failure):
            self._observers.finished(run, ack, failure)

    def _arguments(self, run: Run) -> tuple[list[Any], dict[str, Any]]:
        job, task = run.execution.job, run.execution.task
        try:
            args, kwargs = decode_arguments(job.args, job.kwargs)
        except (ValueError, TypeError, RecursionError) as error:
            raise _UnreadableArguments(str(error)) from error
        if task.takes_context:
            args.insert(0, self._observers.context(run))
        return args, kwargs

    def _succeed(self, run: Run, result: str | None) -> None:
        if (announce := self._end(run, result, None)) is not None:
            announce()

    def _fail(self, run: Run, error: BaseException) -> None:
        if (announce := self._end(run, None, error)) is not None:
            announce()

    def _end(self, run: Run, result: str | None, error: BaseException | None) -> Callable[[], None] | None:
        """Put the outcome of a run on its way to the store; return what tells of it, if it is to be told at once."""
        process.end_copy(error)
        job, place = run.execution.job, run.execution.place
        failure: Failure | None = None
        if error is None:
            ack = Ack(job.id, job.claim, JobState.COMPLETED, run.started, time.monotonic(), result)
            if run.is_overdue:
                telemetry.emit("djqueue.job.late", logging.WARNING, job=job.id, task=job.task)
        else:
            ack, failure = self.failure(run, error)
        ack = for_job(ack, job)
        is_wanted = self._observers.want_finish(failure)
        if self.running.pop(place, None) is None:
            return None  # given back while it ran; another worker owns the job now
        if not is_wanted:
            self._acker.put(ack, place)
            return None
        # The outcome is decided. Whoever listens may fail, but changes nothing.
        announce = partial(self._observers.finished if error is None else self._announce_failure, run, ack, failure)
        if self._claims.seconds_since_beat() < DOUBTFUL_SECONDS:
            self._acker.put(ack, place)
            return announce
        # This worker was away for long, and perhaps the job has ended elsewhere: no outcome is told twice.
        self._acker.put(ack, place, when_accepted=announce)
        return None

    def _announce_failure(self, run: Run, ack: Ack, failure: Failure | None) -> None:
        """Tell of a task that raised. What receivers write must not land in a transaction that the task left open."""
        settle = partial(django_connections.settle, is_clean=False)
        hooks.call(settle, None, "The connections of the failed job %d could not be given back.", ack.id)
        self._observers.finished(run, ack, failure)

    def _conclude_broken(self, execution: Execution, error: BaseException) -> None:
        """Give an attempt that was broken around its task an outcome, unless it has one."""
        process.end_copy(error)
        hooks.report(error, _AROUND, execution.job.id)
        if (run := self.running.pop(execution.place, None)) is not None:
            self._acker.put(broken(execution.job, self._worker, error, started=run.started), execution.place)

    def failure(self, run: Run, error: BaseException) -> tuple[Ack, Failure | None]:
        """Return the ack of a run that raised, and what is told of it; None for what was meant, a snooze."""
        job = run.execution.job
        if isinstance(error, _UnreadableArguments):
            telemetry.emit("djqueue.job.unreadable", logging.ERROR, job=job.id, task=job.task, error=str(error))
            return parked(job, error), None
        try:
            error = run.judge(error)
        except BaseException as problem:  # an exception that cannot even be asked for its class
            hooks.report(problem, "Job %d raised an exception that cannot be examined.", job.id)
        outcome = outcome_of(error, job, run.execution.task)
        entry = failure = None
        if outcome.is_error:
            failure = Failure(error, "" if run.was_cancelled_where_it_waited(error) else format_error(error))
            entry = encode_error(
                error, attempt=job.attempt, worker=self._worker, traceback=failure.traceback, problem=outcome.problem
            )
        ended = time.monotonic()
        ack = Ack(job.id, job.claim, outcome.state, run.started, ended, None, entry, outcome.delay, outcome.is_spent)
        return ack, failure

    def disown(self, place: int) -> None:
        """Drop the outcome of what runs here, should there ever be one: the claim is given back."""
        self.running.pop(place, None)

    def close(self) -> None:
        """End the timekeeper and the event loop, with whatever still runs on it."""
        self.timekeeper.stop()
        self.event_loop.stop()
