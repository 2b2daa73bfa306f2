"""Report what happens to a job: to django.tasks' signals, the log and telemetry, and the task itself.

None of them can change an outcome. A TaskResult costs more than a short job does, so it is made only where there is a
receiver.
"""

from __future__ import annotations

import json
import logging
from uuid import UUID

from djqueue import compat, hooks, telemetry
from djqueue.compat import has_listeners, task_finished, task_started
from djqueue.exceptions import Cancel, JobSignal
from djqueue.jobs.moments import as_django
from djqueue.jobs.records import Ack
from djqueue.jobs.states import JobState
from djqueue.runtime.execution import Execution, Failure
from djqueue.tasks.context import TaskContext
from djqueue.tasks.results import TaskResult, finish, from_claim

_DEBUG, _INFO, _WARNING = logging.DEBUG, logging.INFO, logging.WARNING
_FAILED = (JobState.DISCARDED, JobState.CANCELLED)


class Observers:
    """Checks once, at the start, whether django.tasks' own log lines are written; receivers of signals are looked up each time."""

    def __init__(self, worker: UUID, alias: str, backend_class: type) -> None:
        self._worker = worker
        self._alias = alias
        self._sender = backend_class
        self._logs_start = compat.is_logged(task_started, logging.INFO)
        self._logs_finish = compat.is_logged(task_finished, logging.INFO)

    @property
    def signals_finish(self) -> bool:
        return self._logs_finish or has_listeners(task_finished)

    @property
    def want_start(self) -> bool:
        return self._logs_start or has_listeners(task_started) or telemetry.is_heard(_DEBUG)

    def want_finish(self, failure: Failure | None) -> bool:
        if self._logs_finish or has_listeners(task_finished):
            return True
        return telemetry.is_heard(_INFO if failure is None else _WARNING)

    def context(self, execution: Execution) -> TaskContext:
        """Make the context of a task with ``takes_context=True``."""
        return TaskContext(
            task_result=self._result(execution),
            cancelled=execution.cancelled,
            deadline=as_django(execution.deadline_at),
            claimed=execution.job,
        )

    def started(self, execution: Execution) -> None:
        """Report that the function is about to be called."""
        job = execution.job
        if self._logs_start or has_listeners(task_started):
            try:
                task_started.send_robust(self._sender, task_result=self._result(execution))
            except BaseException as error:
                hooks.report(error, "Unexpected error while sending task_started for job %s.", job.id)
        telemetry.emit(
            "djqueue.job.start",
            logging.DEBUG,
            job=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
        )

    def finished(self, execution: Execution, ack: Ack, failure: Failure | None) -> None:
        """Report an outcome that is decided and on its way to the store."""
        job = execution.job
        error, traceback = failure or (None, "")
        started = ack.started or ack.finished
        if ack.state.is_final and self.signals_finish:
            try:
                result = self._result(execution)
                value = json.loads(ack.result) if ack.result is not None else None
                finish(
                    result,
                    ack.state,
                    at=execution.by_the_store(ack.finished),
                    value=value,
                    error=error,
                    traceback=traceback,
                )
                task_finished.send_robust(self._sender, task_result=result)
            except BaseException as problem:
                hooks.report(problem, "Unexpected error while sending task_finished for job %s.", job.id)
        if isinstance(error, Cancel):
            level = logging.INFO  # an operator or the task itself asked for it
        elif ack.state in _FAILED:
            level = logging.ERROR
        elif error is not None:
            level = logging.WARNING
        else:
            level = logging.INFO
        telemetry.emit(
            "djqueue.job.stop",
            level,
            exc_info=None if isinstance(error, JobSignal) else error,  # raised on purpose: no traceback
            exc_text=None if isinstance(error, JobSignal) else traceback.rstrip("\n"),
            job=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
            state=ack.state.value,
            duration_seconds=ack.finished - started,
            **({} if error is None else {"error": hooks.name_of_class(error), "retry_in_seconds": ack.delay}),
        )

    def _result(self, execution: Execution) -> TaskResult:
        # One object from task_started to task_finished, and the one the context carries.
        if execution.result is None:
            execution.result = from_claim(execution.job, execution.task, self._alias, self._worker)
        return execution.result
