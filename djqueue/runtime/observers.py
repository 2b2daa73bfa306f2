"""Who wants to know what happens to a job: django.tasks' signals, the log, and the task itself.

None of them can change an outcome. A TaskResult costs more than a short job does, so it is made only for those who
listen.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from uuid import UUID

from djqueue import compat, telemetry
from djqueue.cancellation import Cancelled
from djqueue.exceptions import Cancel, Steering
from djqueue.records import Ack
from djqueue.results import TaskContext, TaskResult, finish, from_claim
from djqueue.runtime.lanes import Execution
from djqueue.runtime.runs import Failure
from djqueue.states import JobState

_FAILED = (JobState.DISCARDED, JobState.CANCELLED)


class Observers:
    """Asked once, when the worker starts, who listens; receivers connect when their modules are imported."""

    def __init__(self, worker: UUID, alias: str, backend_class: type) -> None:
        self._worker = worker
        self._alias = alias
        self._sender = backend_class
        self._signals_start = compat.is_heard(compat.task_started, logging.INFO)
        self._signals_finish = compat.is_heard(compat.task_finished, logging.INFO)
        self._results: dict[int, TaskResult] = {}

    @property
    def want_start(self) -> bool:
        return self._signals_start or telemetry.is_heard(logging.DEBUG)

    def want_finish(self, failure: Failure | None) -> bool:
        return self._signals_finish or telemetry.is_heard(logging.INFO if failure is None else logging.WARNING)

    def context(self, execution: Execution, cancelled: Cancelled, deadline: datetime | None) -> TaskContext:
        """Make what a task with ``takes_context=True`` gets."""
        return TaskContext(task_result=self._result(execution), cancelled=cancelled, deadline=deadline)

    def started(self, execution: Execution) -> None:
        """The function is about to be called."""
        job = execution.job
        if self._signals_start:
            compat.task_started.send_robust(self._sender, task_result=self._result(execution))
        telemetry.emit(
            "djqueue.job.start",
            logging.DEBUG,
            job=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
        )

    def finished(self, execution: Execution, ack: Ack, failure: Failure | None) -> None:
        """The outcome is decided and on its way to the store."""
        job = execution.job
        error, traceback = failure or (None, "")
        started = ack.started or ack.finished
        if self._signals_finish and (ack.state.is_final):
            result = self._result(execution)
            value = json.loads(ack.result) if ack.result is not None else None
            finish(result, ack.state, at=datetime.now(UTC), value=value, error=error, traceback=traceback)
            compat.task_finished.send_robust(self._sender, task_result=result)
        self._results.pop(execution.place, None)
        if isinstance(error, Cancel):
            level = logging.INFO  # somebody wanted it, or the task itself
        elif ack.state in _FAILED:
            level = logging.ERROR
        elif error is not None:
            level = logging.WARNING
        else:
            level = logging.INFO
        telemetry.emit(
            "djqueue.job.stop",
            level,
            exc_info=None if isinstance(error, Steering) else error,  # meant, not suffered
            exc_text=None if isinstance(error, Steering) else traceback.rstrip("\n"),
            job=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
            state=ack.state.value,
            duration_seconds=ack.finished - started,
            **({} if error is None else {"error": type(error).__name__, "retry_in_seconds": ack.delay}),
        )

    def _result(self, execution: Execution) -> TaskResult:
        # One object from task_started to task_finished, and the one the context carries.
        result = self._results.get(execution.place)
        if result is None or result.job.id != execution.job.id:
            result = from_claim(execution.job, execution.task, self._alias, self._worker)
            self._results[execution.place] = result
        return result
