"""Call the function of a claimed job and turn whatever happens into an ack.

The only place that catches everything, because user code runs here. Nothing a task raises reaches another job: not
SystemExit, not a stray CancelledError, not an exception that fails when it is printed.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextvars import copy_context
from typing import Any
from uuid import UUID

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from djqueue.encoding import encode_error, encode_result
from djqueue.records import Ack
from djqueue.runtime import django_connections
from djqueue.runtime.acker import Acker
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.lanes import Execution, Lane
from djqueue.runtime.observers import Observers
from djqueue.runtime.outcomes import outcome_of
from djqueue.states import JobState


class Executor:
    """Threads for sync jobs, one event loop for async ones."""

    def __init__(
        self, worker: UUID, acker: Acker, claims: ClaimBlock, observers: Observers, *, max_result_bytes: int
    ) -> None:
        self._worker = worker
        self._acker = acker
        self._claims = claims
        self._observers = observers
        self._max_result_bytes = max_result_bytes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_lock = threading.Lock()
        self._async_tasks: set[asyncio.Task[None]] = set()
        self.running: dict[int, Execution] = {}
        """What runs at this moment, by its place in the claim block."""

    # Sync

    def start_thread(self, lane: Lane, execution: Execution) -> None:
        thread = threading.Thread(target=self._serve, args=(lane, execution), name="djqueue-job", daemon=True)
        thread.start()

    def _serve(self, lane: Lane, execution: Execution) -> None:
        try:
            following: Execution | None = execution
            while following is not None:
                seconds = self._execute(following)
                following = lane.next_for_thread(seconds, django_connections.release)
        finally:
            django_connections.close_all()

    def _execute(self, execution: Execution) -> float:
        _, task, _, place, _ = execution
        self._claims.begin(place)
        self.running[place] = execution
        started = time.monotonic()
        try:
            args, kwargs = self._arguments(execution)
            if self._observers.want_start:
                self._observers.started(execution)
            # A context of its own, so that nothing a task leaves in a context variable reaches the next job.
            value = copy_context().run(task.func, *args, **kwargs)
            result = encode_result(value, self._max_result_bytes) if value is not None else None
        except BaseException as error:
            self._fail(execution, started, error)
            django_connections.settle(is_clean=False)
        else:
            self._succeed(execution, started, result)
            django_connections.settle(is_clean=True)
        return time.monotonic() - started

    # Async

    def start_async(self, lane: Lane, executions: list[Execution]) -> None:
        """Start jobs on the event loop, from any thread."""
        with self._loop_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._run_loop, args=(self._loop,), name="djqueue-loop", daemon=True).start()
        self._loop.call_soon_threadsafe(self._create_tasks, lane, executions)

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            django_connections.close_all()

    def _create_tasks(self, lane: Lane, executions: list[Execution]) -> None:
        assert self._loop is not None
        for execution in executions:
            task = self._loop.create_task(self._execute_async(lane, execution))
            self._async_tasks.add(task)
            task.add_done_callback(self._async_tasks.discard)

    async def _execute_async(self, lane: Lane, execution: Execution) -> None:
        _, task, _, place, _ = execution
        self._claims.begin(place)
        self.running[place] = execution
        started = time.monotonic()
        try:
            # Sync code that the task awaits gets a thread of its own, as in a request under ASGI, and with it
            # connections that no other job shares.
            async with ThreadSensitiveContext() as context:
                try:
                    args, kwargs = self._arguments(execution)
                    if self._observers.want_start:
                        await sync_to_async(self._observers.started)(execution)
                    value = await task.func(*args, **kwargs)
                    result = encode_result(value, self._max_result_bytes) if value is not None else None
                finally:
                    if context in SyncToAsync.context_to_thread_executor:
                        await sync_to_async(django_connections.close_all)()
        except BaseException as error:
            # CancelledError, SystemExit and the like too: a task that raises them fails, the loop goes on.
            self._fail(execution, started, error)
        else:
            self._succeed(execution, started, result)
        self._create_tasks(lane, lane.finish_async(time.monotonic() - started))

    # Both

    def _arguments(self, execution: Execution) -> tuple[list[Any], dict[str, Any]]:
        job, task = execution.job, execution.task
        args = json.loads(job.args) if job.args != "[]" else []
        kwargs = json.loads(job.kwargs) if job.kwargs != "{}" else {}
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise TypeError("The stored arguments are not a list and an object; somebody edited the row.")
        if task.takes_context:
            args.insert(0, self._observers.context(execution))
        return args, kwargs

    def _succeed(self, execution: Execution, started: float, result: str | None) -> None:
        job = execution.job
        finished = time.monotonic()
        self._finish(execution, Ack(job.id, job.claim, JobState.COMPLETED, started, finished, result), None)

    def _fail(self, execution: Execution, started: float, error: BaseException) -> None:
        job, task = execution.job, execution.task
        finished = time.monotonic()
        outcome = outcome_of(error, job, task)
        entry = encode_error(error, attempt=job.attempt, worker=self._worker) if outcome.is_error else None
        self._finish(
            execution,
            Ack(
                job.id,
                job.claim,
                outcome.state,
                started,
                finished,
                None,
                entry,
                outcome.delay,
                outcome.is_spent,
            ),
            error if outcome.is_error else None,
        )

    def _finish(self, execution: Execution, ack: Ack, error: BaseException | None) -> None:
        # The outcome is decided. Whoever listens may fail, but changes nothing.
        if self.running.pop(execution.place, None) is None:
            return  # given back while it ran; somebody else owns the job now
        self._acker.put(ack, execution.place)
        if self._observers.want_finish(error):
            self._observers.finished(execution, ack, error)

    def disown(self, place: int) -> None:
        """Drop the outcome of what runs here, should there ever be one: the claim is given back."""
        self.running.pop(place, None)

    def close(self) -> None:
        """End the event loop; jobs on it that still run are cancelled."""
        loop = self._loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(loop.stop)
