"""What all backends do alike: check, encode and store jobs, and tell what became of them."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage

from djqueue import checks, compat, conf, hooks, propagation
from djqueue.backends.chunks import Chunks, Ids, Items
from djqueue.engines.protocol import Engine
from djqueue.exceptions import DuplicateJob, InvalidJob
from djqueue.jobs.compression import compressed
from djqueue.jobs.encoding import Encoded, encode_arguments
from djqueue.jobs.moments import as_aware
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, InsertedMany, NewJob, UniqueRule
from djqueue.tasks.results import BulkResult, TaskResult, from_insert, from_job
from djqueue.tasks.signatures import check_arguments, checker
from djqueue.tasks.task import Task
from djqueue.tasks.unique import key_of, rule_of

if TYPE_CHECKING:
    from djqueue.outbox.rows import Outbox

    _AnyTask = compat.Task[..., Any]

_JOB_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_MAX_JOB_ID = 2**63 - 1
_decode = json.JSONDecoder().decode
_NO_ARGUMENTS = Encoded("[]", "{}")


class Inserts(Protocol):
    """What takes new jobs: an engine, or what keeps them until they may go there."""

    def insert(self, jobs: Sequence[NewJob], *, rule: UniqueRule = LIVE_ONLY) -> list[InsertedJob]: ...

    def insert_many(self, job: NewJob, arguments: Sequence[Encoded]) -> InsertedMany: ...


class QueueBackend(compat.BaseTaskBackend):
    task_class = Task

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    supports_delay = True
    """``run_after`` may be a timedelta, which the store's clock counts."""
    supports_transactional = False
    """Whether a task's writes and its completion can commit together (``transactional=True``)."""

    options_class: ClassVar[type[conf.Options]]

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self.declared_queues = params.get("QUEUES", [compat.DEFAULT_TASK_QUEUE_NAME])
        if not isinstance(self.declared_queues, list | tuple | set | frozenset):
            # The base would make four queues of "mail", and a TypeError of 4. The system check says what is wrong.
            params = {**params, "QUEUES": []}
        super().__init__(alias, params)
        checks.report_missing_app(alias)
        self._valid: _AnyTask | None = None
        """The task that was found valid last; tasks do not change, and mostly the same is enqueued again."""

    @cached_property
    def settings(self) -> Any:
        """The OPTIONS; raises ``InvalidOptions`` if they cannot work."""
        return conf.parse(self.options, self.options_class)

    @cached_property
    @abstractmethod
    def engine(self) -> Engine:
        """The engine; no connection is opened before its first verb."""

    @property
    @abstractmethod
    def database_of_tables(self) -> str | None:
        """The alias in DATABASES where ``migrate`` must have made djqueue's tables; None if it needs none."""

    @property
    def outbox(self) -> Outbox | None:
        """Where jobs wait between their transaction and the store, if there is such a place."""
        return None

    @abstractmethod
    def insert_one(self, new: NewJob, task: Task) -> InsertedJob:
        """Store a job in, or with, the caller's transaction, if there is one."""

    @abstractmethod
    def inserting(self, task: Task, chunks: Chunks) -> AbstractContextManager[tuple[Inserts, Iterable[list[Encoded]]]]:
        """Open what takes the jobs of one ``enqueue_many``, all of them or none; and give the chunks back to read."""

    def validate_task(self, task: _AnyTask) -> None:
        """Raise ``InvalidTask`` if this backend cannot run the task."""
        if task is self._valid:
            return
        priority = cast(object, task.priority)
        # NaN is not itself. The base would raise a ValueError for it, and a TypeError for a string.
        if isinstance(priority, bool) or not isinstance(priority, int | float) or priority != priority:
            raise compat.InvalidTask(f"priority must be a whole number, not {priority!r}.")
        queue_name = cast(object, task.queue_name)
        if not isinstance(queue_name, str) or not conf.QUEUE_NAME.fullmatch(queue_name):
            raise compat.InvalidTask(conf.invalid_queue_name(queue_name))
        if self.queues and queue_name not in self.queues:
            raise compat.InvalidTask(
                f"{queue_name!r} is not among the QUEUES of {self.alias!r}, which are {', '.join(sorted(self.queues))}."
            )
        if task.run_after is not None and not 1 < task.run_after.year < 9999:
            raise compat.InvalidTask(f"run_after is a time in the years 2 to 9998, not {task.run_after}.")
        super().validate_task(task)
        if len(task.module_path) > 255:
            raise compat.InvalidTask(f"The path of a task has at most 255 characters: {task.module_path!r}.")
        if not self.supports_transactional and isinstance(task, Task) and task.transactional:
            raise compat.InvalidTask(
                f"transactional=True needs a backend whose jobs live in the database of the task's writes, and those of"
                f" {self.alias!r} do not. Use djqueue.backends.PostgresBackend for {task.module_path}."
            )
        self._valid = task

    def enqueue(self, task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:  # type: ignore[override]  # the base says list, and gets a tuple
        """Store a job in, or with, the caller's transaction, if there is one."""
        ours = Task.of(task)
        new = self.new_job(ours, args, kwargs)
        inserted = self.insert_one(new, ours)
        if inserted.was_duplicate:
            return self._duplicate(new, inserted, ours)
        result = from_insert(new, inserted, ours, self.alias)
        self._announce(result)
        return result

    async def aenqueue(self, task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:  # type: ignore[override]  # see enqueue
        """See ``enqueue``."""
        return await _on_the_sync_thread(self.enqueue, task, args, kwargs)

    def enqueue_many(
        self,
        task: _AnyTask,
        items: Items,
        *,
        batch_size: int = 5000,
        on_progress: Callable[[int], None] | None = None,
    ) -> BulkResult:
        """Store one job per pair of args and kwargs, all or none, up to ``batch_size`` per statement."""
        if type(batch_size) is not int or not 1 <= batch_size <= 100_000:
            raise ValueError(f"batch_size takes a number from 1 to 100000, not {batch_size!r}.")
        ours = Task.of(task)
        self.validate_task(ours)
        ids = array("q")
        duplicate_of: dict[int, str] = {}
        # A chunk is whole before its statement starts: a generator that asks the same connection must not meet
        # one that is still running.
        position = 0
        every = Chunks(items, batch_size, self.settings.max_args_bytes, checker(ours))
        with self.inserting(ours, every) as (inserts, chunks):
            for chunk in chunks:
                self._insert_chunk(inserts, ours, chunk, position, ids, duplicate_of)
                position += len(chunk)
                if on_progress is not None:
                    on_progress(position)
        return BulkResult(len(ids), Ids(ids), len(duplicate_of), duplicate_of)

    def get_result(self, result_id: str) -> TaskResult:
        """Return what became of a job; raise ``TaskResultDoesNotExist`` if there is none of this id."""
        text = str(result_id)
        number = int(text) if _JOB_ID.fullmatch(text) else 0
        job = self.engine.get(number) if 0 < number <= _MAX_JOB_ID else None
        if job is None:
            raise compat.TaskResultDoesNotExist(f"There is no job {text[:64]!r}.")
        return from_job(job, self.alias)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return what ``manage.py check`` says about this backend."""
        return checks.check_backend(self.alias, self.declared_queues, self.options, self.options_class)

    def new_job(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        """Check and encode a job as ``enqueue`` does, and store nothing."""
        self.validate_task(task)
        encoded = encode_arguments(args, kwargs, self.settings.max_args_bytes)
        check_arguments(task, args, kwargs)
        return self._new_job(task, encoded, propagation.capture())

    def _new_job(self, task: Task, encoded: Encoded, meta: str) -> NewJob:
        key, delay = None, task.run_in
        if (rule := task.unique) is not None:
            args = _decode(encoded.args)
            kwargs = {} if encoded.kwargs == "{}" else _decode(encoded.kwargs)
            key = key_of(rule, task.module_path, task.func, args, kwargs, takes_context=task.takes_context)
            delay = rule.debounce or delay
        if task.compress:
            encoded = compressed(encoded)
        return NewJob(
            task=task.module_path,
            args=encoded.args,
            kwargs=encoded.kwargs,
            queue=task.queue_name,
            priority=int(task.priority),
            max_attempts=task.max_attempts or self.settings.max_attempts,
            scheduled_at=as_aware(task.run_after),
            delay=delay,
            max_age=task.max_age,
            meta=meta,
            unique_key=key,
        )

    def _duplicate(self, new: NewJob, inserted: InsertedJob, task: Task) -> TaskResult:
        """Return the result of the job that holds the key, or raise ``DuplicateJob``."""
        if task.unique is not None and task.unique.on_conflict == "raise":
            raise _duplicate_error(task, inserted)
        job = self.engine.get(inserted.id)
        if job is None:
            # It holds its key longer than it is kept, or was deleted this moment.
            return from_insert(new, inserted, task, self.alias)
        result = from_job(job, self.alias)
        object.__setattr__(result, "was_duplicate", True)
        return result

    def _insert_chunk(
        self,
        inserts: Inserts,
        task: Task,
        chunk: list[Encoded],
        position: int,
        ids: array[int],
        duplicate_of: dict[int, str],
    ) -> None:
        meta = propagation.capture()
        if task.unique is None:
            shared = self._new_job(task, _NO_ARGUMENTS, meta)
            if task.compress:
                chunk = list(map(compressed, chunk))
            inserted = inserts.insert_many(shared, chunk)
            ids.extend(inserted.ids)
            if compat.is_heard(compat.task_enqueued):
                for id, (args, kwargs) in zip(inserted.ids, chunk, strict=True):
                    job = InsertedJob(id, inserted.state, inserted.inserted_at)
                    self._announce(from_insert(shared._replace(args=args, kwargs=kwargs), job, task, self.alias))
            return
        jobs: list[NewJob] = []
        for place, encoded in enumerate(chunk, position):
            try:
                jobs.append(self._new_job(task, encoded, meta))
            except InvalidJob as error:
                raise type(error)(f"Item {place}: {error}") from error
        answers = inserts.insert(jobs, rule=rule_of(task.unique))
        for place, job in enumerate(answers, position):
            if not job.was_duplicate:
                ids.append(job.id)
            elif task.unique.on_conflict == "raise":
                raise _duplicate_error(task, job, f"Item {place}: ")
            else:
                duplicate_of[place] = str(job.id)
        if compat.is_heard(compat.task_enqueued):
            for new, job in zip(jobs, answers, strict=True):
                if not job.was_duplicate:
                    self._announce(from_insert(new, job, task, self.alias))

    def _announce(self, result: TaskResult) -> None:
        try:
            compat.task_enqueued.send_robust(type(self), task_result=result)
        except Exception as error:
            # Async receivers below a running event loop, for example. The job is stored all the same.
            hooks.report(error, "The signal task_enqueued could not be sent for job %s.", result.id)


@sync_to_async(thread_sensitive=True)
def _on_the_sync_thread(enqueue: Callable[..., TaskResult], *args: Any) -> TaskResult:
    # Wrapped once: to wrap anew for each job takes longer than to encode it.
    return enqueue(*args)


def _duplicate_error(task: Task, job: InsertedJob, where: str = "") -> DuplicateJob:
    return DuplicateJob(f"{where}Job {job.id} ({job.state}) of {task.module_path} holds the unique key.", str(job.id))
