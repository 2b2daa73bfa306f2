"""Call the function of a claimed job and turn whatever happens into an outcome.

The only place that catches everything, because user code runs here. Nothing that a task raises reaches another job: not
SystemExit, not a stray CancelledError, not an exception that fails when it is printed. A lane calls ``run`` in a thread
and ``run_async`` on the event loop; neither raises, and nothing here calls the lane.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import DatabaseError, InterfaceError
from django.db.transaction import TransactionManagementError

from djqueue import hooks, propagation, telemetry
from djqueue.adapters.asgiref import contexts_with_threads
from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.encoding import encode_result
from djqueue.jobs.records import ClaimedJob
from djqueue.jobs.states import JobState
from djqueue.runtime import django_connections, process, statements
from djqueue.runtime.event_loop import EventLoop
from djqueue.runtime.execution import Execution
from djqueue.runtime.lifecycle import Lifecycle, needs_results, was_lost
from djqueue.runtime.observers import Observers
from djqueue.runtime.outcomes import ack_of
from djqueue.service import growing_pauses

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
"""Between two tries to read from the store whether a transaction was committed."""


class Executor:
    """Runs sync jobs in the calling thread and async ones on one event loop."""

    def __init__(self, engine: Engine, lifecycle: Lifecycle, observers: Observers, *, max_result_bytes: int) -> None:
        self._engine = engine
        self._lifecycle = lifecycle
        self._observers = observers
        self._max_result_bytes = max_result_bytes
        self.event_loop = EventLoop()

    # Sync

    def run(self, execution: Execution) -> float:
        """Run a sync job to its end in this thread; return the seconds that it took. Never raises."""
        try:
            return self._run(execution)
        except BaseException as error:
            # It did not come from the task, but for example from a database router. The slot and the outcome must survive it.
            self._lifecycle.end_broken(execution, error)
            give_back = partial(django_connections.give_back, is_clean=False)
            hooks.call(give_back, None, "The thread of job %d could not give its connections back.", execution.job.id)
            return 0.0

    @staticmethod
    def release_connections() -> None:
        """Close what an idle thread may not keep. Never raises."""
        hooks.call(django_connections.close_unkeepable, None, "An idle job thread could not close its connections.")

    @staticmethod
    def close_connections() -> None:
        """Close every connection of a thread that ends. Never raises."""
        hooks.call(django_connections.close_all, None, "An ending job thread could not close its connections.")

    def _run(self, execution: Execution) -> float:
        lifecycle = self._lifecycle
        if not lifecycle.begin(execution):
            django_connections.give_back(is_clean=True)  # receivers of signals may have used them
            return 0.0
        task = execution.task
        if task.transactional:
            self._run_transactional(execution)
            django_connections.give_back(is_clean=True)
            return time.monotonic() - execution.started
        is_clean = False
        try:
            args, kwargs = lifecycle.arguments(execution)
            if self._observers.want_start:
                self._report_start(execution)
            if execution.deadline is not None or "context" in execution.job.meta:
                value = copy_context().run(self._call_with_context, execution, args, kwargs)
            else:
                # A context of its own, so that nothing a task leaves in a context variable reaches the next job.
                value = copy_context().run(task.func, *args, **kwargs)
            result = encode_result(value, self._max_result_bytes) if value is not None else None
            django_connections.require_no_open_transaction()
        except BaseException as error:
            lifecycle.end_and_report(execution, None, error)
        else:
            is_clean = True
            lifecycle.end_and_report(execution, result, None)
        django_connections.give_back(is_clean=is_clean)
        return time.monotonic() - execution.started

    def _report_start(self, execution: Execution) -> None:
        self._observers.started(execution)
        django_connections.roll_back_receivers()

    @staticmethod
    def _call_with_context(execution: Execution, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with propagation.restored(execution.job.meta):
            if execution.deadline is None:
                return execution.task.func(*args, **kwargs)
            with statements.cancellable() as execution.statements:
                return execution.task.func(*args, **kwargs)

    def _run_transactional(self, execution: Execution) -> None:
        """Commit what the task writes and its completion together.

        The ack is the last statement of the task's own transaction. If the store refuses it, another worker owns the job,
        and everything is rolled back. If the commit fails, only the store knows whether it took place.
        """
        job = execution.job
        is_acknowledged = is_refused = False
        try:
            args, kwargs = self._lifecycle.arguments(execution)
            if self._observers.want_start:
                self._report_start(execution)  # before the transaction: a receiver whose SQL fails would abort it
            with self._engine.transaction() as alias:
                try:
                    value = copy_context().run(self._call_with_context, execution, args, kwargs)
                except BaseException as error:
                    process.end_copy(error)  # before the transaction ends: it is the worker's
                    raise
                process.end_copy(None)
                result = encode_result(value, self._max_result_bytes) if value is not None else None
                django_connections.require_no_open_transaction(besides=alias)
                ack = ack_of(job, JobState.COMPLETED, execution.started, time.monotonic(), result)
                is_acknowledged = self._engine.ack_here(ack)
                if is_refused := not is_acknowledged:
                    raise TransactionManagementError(
                        "The task deleted or changed its own job in its transaction. What it wrote was rolled back."
                    )
        except BaseException as error:
            if is_refused:
                # Another worker owns the job, or the task is the cause, and since the rollback the job is as before. The
                # claim tells: the failure is stored only if it still holds.
                self._lifecycle.end_if_accepted(execution, error)
                return
            if not (is_acknowledged and self._was_committed(job)):
                self._lifecycle.end_and_report(execution, None, error)
                return
            # A callback of transaction.on_commit failed, or the answer to the commit was lost on its way.
            telemetry.emit("djqueue.job.after_commit", logging.ERROR, exc_info=error, job=job.id, task=job.task)
        self._lifecycle.end_transactional(execution, ack)

    def _was_committed(self, job: ClaimedJob) -> bool:
        """Read from the store, for as long as it takes, whether the job was completed under this claim."""
        pauses = growing_pauses(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            django_connections.close_all()
            try:
                stored = self._engine.get(job.id)
            except (EngineUnavailable, DatabaseError, InterfaceError):
                time.sleep(next(pauses))
            else:
                return stored is not None and stored.claim == job.claim and stored.state is JobState.COMPLETED

    # Async

    async def run_async(self, execution: Execution) -> float:
        """Run an async job to its end on the event loop; return the seconds that it took. Never raises."""
        try:
            process.end_copy(None)
            noted: asyncio.Future[bool] | None = None
            if was_lost(execution.job):
                # In a thread: the loop must not wait for the store, and Django allows no connection there.
                note = partial(self._lifecycle.note_begun, execution.job)
                noted = asyncio.get_running_loop().run_in_executor(None, note)
                with suppress(asyncio.CancelledError):  # begin() then fails, and gives the job its outcome
                    await asyncio.wait([noted])
            if not self._lifecycle.begin(execution, noted=noted):
                return 0.0
            execution.future = (
                asyncio.current_task()
            )  # cancel requests need it, and the loop itself keeps no task alive
            # Sync code that the task awaits gets a thread of its own, as in a request under ASGI, and with it
            # connections that no other job shares.
            async with ThreadSensitiveContext() as context:
                announce = None
                try:
                    announce = await self._call_async(execution, context)
                    if announce is not None and self._observers.signals_finish:
                        await sync_to_async(
                            announce
                        )()  # receivers may use the database, which they may not on the loop
                    elif announce is not None:
                        announce()
                finally:
                    # It holds what the task raised, whose traceback holds this frame: a cycle, with all that the task
                    # had in memory, which would stay until the garbage collector runs.
                    announce = None
                    if context in contexts_with_threads:
                        await sync_to_async(django_connections.close_all)()
        except BaseException as error:
            self._lifecycle.end_broken(execution, error)
        return time.monotonic() - execution.started if execution.started else 0.0

    async def _call_async(self, execution: Execution, context: ThreadSensitiveContext) -> Callable[[], None] | None:
        try:
            if needs_results(execution.job):
                args, kwargs = await sync_to_async(self._lifecycle.arguments)(execution)
            else:
                args, kwargs = self._lifecycle.arguments(execution)
            if self._observers.want_start:
                await sync_to_async(self._report_start)(execution)
            if execution.deadline is not None or "context" in execution.job.meta:
                value = await self._await_with_context(execution, context, args, kwargs)
            else:
                value = await execution.task.func(*args, **kwargs)
            result = encode_result(value, self._max_result_bytes) if value is not None else None
            if context in contexts_with_threads:
                await sync_to_async(django_connections.require_no_open_transaction)()
        except BaseException as error:
            # CancelledError, SystemExit and the like too: a task that raises them fails, the loop goes on.
            return self._lifecycle.end(execution, None, error)
        return self._lifecycle.end(execution, result, None)

    @staticmethod
    async def _await_with_context(
        execution: Execution, context: ThreadSensitiveContext, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        with propagation.restored(execution.job.meta), statements.cancellable() as execution.statements:
            try:
                return await execution.task.func(*args, **kwargs)
            finally:
                if execution.statements.is_cancelling and context in contexts_with_threads:
                    # The task no longer awaits what runs in its thread: wait until that is cancelled.
                    await sync_to_async(_do_nothing)()

    def close(self) -> None:
        """End the event loop, with whatever still runs on it."""
        self.event_loop.stop()


def _do_nothing() -> None:
    pass
