"""The common base of the backends: adapt the interface of django.tasks to a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage

from djqueue import checks, compat, hooks
from djqueue.bulk.many import duplicate_error, enqueue_many
from djqueue.exceptions import UnknownTask
from djqueue.jobs.chunks import Items
from djqueue.jobs.names import invalid_queue_name, is_queue_name, job_id
from djqueue.jobs.records import LIVE_ONLY, BulkResult, InsertedJob, Job, NewJob
from djqueue.stores import StoreBackend
from djqueue.tasks import registry
from djqueue.tasks.new_job import new_job
from djqueue.tasks.results import TaskResult, UnknownTaskResult, from_insert, from_job
from djqueue.tasks.task import Task
from djqueue.tasks.unique import rule_of
from djqueue.workflows.canvas import Canvas
from djqueue.workflows.enqueue import enqueue
from djqueue.workflows.handle import EnqueuedWorkflow
from djqueue.workflows.workflow import Workflow

if TYPE_CHECKING:
    _AnyTask = compat.Task[..., Any]


class QueueBackend(StoreBackend):
    task_class = Task

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    supports_transactional = False
    """Whether a task's writes and its completion can commit together (``transactional=True``)."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        checks.report_missing_app(alias)
        self._valid: _AnyTask | None = None
        """The task that was validated last. Tasks are immutable, and usually the same task is enqueued again."""

    def validate_task(self, task: _AnyTask) -> None:
        """Raise ``InvalidTask`` if this backend cannot run the task."""
        if task is self._valid:
            return
        priority = cast(object, task.priority)
        # NaN is not equal to itself. The base would raise a ValueError for it, and a TypeError for a string.
        if isinstance(priority, bool) or not isinstance(priority, int | float) or priority != priority:
            raise compat.InvalidTask(f"priority must be a whole number, not {priority!r}.")
        if not is_queue_name(task.queue_name):
            raise compat.InvalidTask(invalid_queue_name(task.queue_name))
        if self.queues and task.queue_name not in self.queues:
            raise compat.InvalidTask(
                f"Invalid queue {task.queue_name!r}: the QUEUES of {self.alias!r} are {', '.join(sorted(self.queues))}."
            )
        if task.run_after is not None and not 1 < task.run_after.year < 9999:
            raise compat.InvalidTask(f"Invalid run_after {task.run_after}: use a time in the years 2 to 9998.")
        super().validate_task(task)
        if len(task.module_path) > 255:
            raise compat.InvalidTask(f"Invalid task path {task.module_path!r}: use at most 255 characters.")
        if not self.supports_transactional and isinstance(task, Task) and task.transactional:
            raise compat.InvalidTask(
                f"Invalid transactional=True for {task.module_path}: the jobs of {self.alias!r} are not in a database that"
                " the task can write to. Use djqueue.backends.PostgresBackend."
            )
        self._valid = task

    def enqueue(self, task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:  # type: ignore[override]  # the base says list, and gets a tuple
        """Store a job as part of the caller's transaction or when it commits; at once if there is none."""
        ours = Task.of(task)
        self.validate_task(ours)
        store = self.store
        new = new_job(ours, args, kwargs, store.settings)
        rule = LIVE_ONLY if ours.unique is None else rule_of(ours.unique)
        relaxed = store.is_relaxed(ours.queue_name, ours.durability)
        inserted = store.inserter().insert_one(new, rule=rule, relaxed=relaxed)
        if inserted.was_duplicate:
            return self._duplicate(new, inserted, ours)
        result = from_insert(new, inserted, ours, self.alias)
        if compat.is_heard(compat.task_enqueued):
            # Sending a signal that has no effect takes longer than encoding the job.
            self._announce(result)
        return result

    async def aenqueue(self, task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:  # type: ignore[override]  # see enqueue
        """See ``enqueue``."""
        return await _on_the_sync_thread(self.enqueue, task, args, kwargs)

    def enqueue_many(
        self, task: _AnyTask, items: Items, *, batch_size: int = 5000, on_progress: Callable[[int], None] | None = None
    ) -> BulkResult:
        """Store one job per pair of args and kwargs, all or none, up to ``batch_size`` per statement."""
        ours = Task.of(task)
        self.validate_task(ours)
        return enqueue_many(self.store, ours, items, batch_size, on_progress, partial(self._announce_new, ours))

    def enqueue_workflow(self, work: Canvas | Workflow, *, whole_id: int | None = None) -> EnqueuedWorkflow:
        """Store a chain, a group or a workflow in the caller's transaction, if there is one."""
        return enqueue(self, work, self._announce_new, whole_id=whole_id)

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a job; raise ``TaskResultDoesNotExist`` if no job has this id."""
        number = job_id(result_id)
        # "017" is not an id that enqueue returned.
        job = self.store.engine.get(number) if number and str(number) == str(result_id) else None
        if job is None:
            raise compat.TaskResultDoesNotExist(f"Job {str(result_id)[:64]!r} does not exist.")
        return self._result(job)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return what ``manage.py check`` reports about this backend."""
        return checks.check_store(self.store)

    def _duplicate(self, new: NewJob, inserted: InsertedJob, task: Task) -> TaskResult:
        """Return the result of the job that holds the key, or raise ``DuplicateJob``."""
        if task.unique is not None and task.unique.on_conflict == "raise":
            raise duplicate_error(task, inserted)
        job = self.store.engine.get(inserted.id)
        if job is None:
            # The holder keeps its key longer than its row, or has just been deleted.
            return from_insert(new, inserted, task, self.alias)
        result = self._result(job)
        object.__setattr__(result, "was_duplicate", True)
        return result

    def _result(self, job: Job) -> TaskResult:
        try:
            task = registry.find(job.task)
        except UnknownTask as error:
            raise UnknownTaskResult(f"Job {job.id} exists, but its result cannot be shown. {error}") from None
        return from_job(job, task, self.alias)

    def _announce_new(self, task: Task, new: NewJob, inserted: InsertedJob) -> None:
        self._announce(from_insert(new, inserted, task, self.alias))

    def _announce(self, result: TaskResult) -> None:
        try:
            compat.task_enqueued.send_robust(type(self), task_result=result)
        except Exception as error:
            # For example, async receivers under a running event loop. The job is stored nevertheless.
            hooks.report(error, "The signal task_enqueued could not be sent for job %s.", result.id)


@sync_to_async(thread_sensitive=True)
def _on_the_sync_thread(enqueue: Callable[..., TaskResult], *args: Any) -> TaskResult:
    # Wrapped once, because wrapping the function for each job takes longer than encoding it.
    return enqueue(*args)
