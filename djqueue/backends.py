"""The backends for TASKS: the words of django.tasks translated into those of an engine, and nothing more.

The framework makes a backend object per thread and asyncio task, so it must be cheap: the options are
parsed and the engine is made when first asked for, and no backend holds a connection.

Decisions beyond the contract:

- A receiver of ``task_enqueued`` that raises is logged, and the job stays enqueued. An error would make the
  caller enqueue it a second time.
- An id that is no number of a job, however odd, raises ``TaskResultDoesNotExist``. A job whose task is not
  known in this process raises ``UnknownTaskResult``, which is one too; ``Task.get_result`` raises
  ``TaskResultMismatch`` for it.
- Wrong OPTIONS do not keep a project's modules from being imported: they are errors of ``manage.py check``,
  and of the first use.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard, cast, overload

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage

from djqueue import carriers, checks, compat, conf
from djqueue.compression import compressed
from djqueue.encoding import Encoded, encode_arguments
from djqueue.engines.postgres import PostgresEngine
from djqueue.exceptions import DuplicateJob, InvalidArguments, InvalidJob
from djqueue.records import LIVE_ONLY, InsertedJob, NewJob, UniqueRule
from djqueue.results import BulkResult, TaskResult, from_insert, from_job
from djqueue.tasks import Task
from djqueue.unique import Unique, key_of

if TYPE_CHECKING:
    _AnyTask = compat.Task[..., Any]
    _Pair = tuple[Sequence[Any], Mapping[str, Any]]
    _Items = Iterable[_Pair | Encoded]

_JOB_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_MAX_JOB_ID = 2**63 - 1
_decode = json.JSONDecoder().decode
_NONE: list[Encoded] = []
_NO_ARGUMENTS = Encoded("[]", "{}")
_CHUNK_CHARACTERS = 8_000_000
"""Jobs with large arguments travel in smaller chunks: 5,000 of 256 KB would take gigabytes."""


class PostgresBackend(compat.BaseTaskBackend):
    task_class = Task

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    supports_delay = True
    """``run_after`` may be a timedelta, which the store's clock counts."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self.declared_queues = params.get("QUEUES", [compat.DEFAULT_TASK_QUEUE_NAME])
        if not isinstance(self.declared_queues, list | tuple | set | frozenset):
            # The base would make four queues of "mail", and a TypeError of 4. The system check says what is wrong.
            params = {**params, "QUEUES": []}
        super().__init__(alias, params)
        self._valid: _AnyTask | None = None
        """The task that was found valid last; tasks do not change, and mostly the same is enqueued again."""

    @cached_property
    def settings(self) -> conf.Options:
        """The OPTIONS; raises ``InvalidOptions`` if they cannot work."""
        return conf.parse(self.options)

    @cached_property
    def engine(self) -> PostgresEngine:
        settings = self.settings
        return PostgresEngine(
            settings.database,
            listen=settings.listen,
            statement_timeout_seconds=settings.statement_timeout_seconds,
        )

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
            raise compat.InvalidTask(
                f"{queue_name!r} is no queue name: 1 to 128 letters, digits, '_', '.', ':' or '-'."
            )
        if task.run_after is not None and not 1 < task.run_after.year < 9999:
            raise compat.InvalidTask(f"run_after is a time in the years 2 to 9998, not {task.run_after}.")
        super().validate_task(task)
        if len(task.module_path) > 255:
            raise compat.InvalidTask(f"The path of a task has at most 255 characters: {task.module_path!r}.")
        self._valid = task

    def enqueue(self, task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:  # type: ignore[override]  # the base says list, and gets a tuple
        """Store a job in the caller's transaction, if there is one."""
        ours = Task.of(task)
        new = self.new_job(ours, args, kwargs)
        rule = LIVE_ONLY if ours.unique is None else _rule(ours.unique)
        [inserted] = self.engine.insert([new], rule=rule, relaxed=self._is_relaxed(ours))
        if inserted.was_duplicate:
            return self._duplicate(new, inserted, ours)
        result = from_insert(new, inserted, ours, self.alias)
        compat.task_enqueued.send_robust(type(self), task_result=result)
        return result

    async def aenqueue(self, task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:  # type: ignore[override]  # see enqueue
        """See ``enqueue``."""
        return await _on_the_sync_thread(self.enqueue, task, args, kwargs)

    def enqueue_many(
        self,
        task: _AnyTask,
        items: _Items,
        *,
        batch_size: int = 5000,
        on_progress: Callable[[int], None] | None = None,
    ) -> BulkResult:
        """Store one job per pair of args and kwargs in one transaction, up to ``batch_size`` per statement."""
        if type(batch_size) is not int or not 1 <= batch_size <= 100_000:
            raise ValueError(f"batch_size takes a number from 1 to 100000, not {batch_size!r}.")
        ours = Task.of(task)
        self.validate_task(ours)
        ids = array("q")
        duplicate_of: dict[int, str] = {}
        # A chunk is whole before its statement starts: a generator that asks the same connection must not meet
        # one that is still running.
        chunks = self._encoded_chunks(items, batch_size)
        chunk, is_last = next(chunks, (_NONE, True))
        position = 0
        relaxed = self._is_relaxed(ours)
        # A statement is atomic by itself, so a single chunk needs no transaction; unique keys may take several.
        is_single = is_last and ours.unique is None and not relaxed
        with nullcontext() if is_single else self.engine.together(relaxed=relaxed):
            while chunk:
                self._insert_chunk(ours, chunk, position, ids, duplicate_of)
                position += len(chunk)
                if on_progress is not None:
                    on_progress(position)
                chunk, is_last = next(chunks, (_NONE, True))
        return BulkResult(len(ids), _Ids(ids), len(duplicate_of), duplicate_of)

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
        return checks.check_backend(self.alias, self.declared_queues, self.options)

    def new_job(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        """Check and encode a job as ``enqueue`` does, and store nothing."""
        self.validate_task(task)
        encoded = encode_arguments(args, kwargs, self.settings.max_args_bytes)
        return self._new_job(task, encoded, carriers.capture())

    def _is_relaxed(self, task: Task) -> bool:
        rules = self.settings.queues.get(task.queue_name)
        return (task.durability or (rules and rules.durability) or self.settings.durability) == "relaxed"

    def _new_job(self, task: Task, encoded: Encoded, meta: str) -> NewJob:
        key, delay = None, task.delay
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
            scheduled_at=task.run_after,
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

    def _encoded_chunks(self, items: _Items, size: int) -> Iterator[tuple[list[Encoded], bool]]:
        """Encode and check the items, in chunks of so many or of a few megabytes; say of each if it is the last."""
        limit = self.settings.max_args_bytes
        source = enumerate(items)
        while True:
            chunk: list[Encoded] = []
            characters = 0
            for position, item in islice(source, size):
                if type(item) is Encoded:  # a line of a file, checked with its number
                    encoded = item
                else:
                    try:
                        args, kwargs = item if _is_plain_pair(item) else _pair(item)
                        encoded = encode_arguments(args, kwargs, limit)
                    except InvalidJob as error:
                        raise type(error)(f"Item {position}: {error}") from None
                chunk.append(encoded)
                characters += len(encoded.args) + len(encoded.kwargs)
                if characters > _CHUNK_CHARACTERS:
                    break
            is_last = len(chunk) < size and characters <= _CHUNK_CHARACTERS
            if chunk:
                yield chunk, is_last
            if is_last:
                return

    def _insert_chunk(
        self, task: Task, chunk: list[Encoded], position: int, ids: array[int], duplicate_of: dict[int, str]
    ) -> None:
        meta = carriers.capture()
        if task.unique is None:
            shared = self._new_job(task, _NO_ARGUMENTS, meta)
            if task.compress:
                chunk = list(map(compressed, chunk))
            inserted = self.engine.insert_many(shared, chunk)
            ids.extend(inserted.ids)
            if compat.is_heard(compat.task_enqueued):
                for id, (args, kwargs) in zip(inserted.ids, chunk, strict=True):
                    job = InsertedJob(id, inserted.state, inserted.inserted_at)
                    self._announce(shared._replace(args=args, kwargs=kwargs), job, task)
            return
        jobs: list[NewJob] = []
        for place, encoded in enumerate(chunk, position):
            try:
                jobs.append(self._new_job(task, encoded, meta))
            except InvalidJob as error:
                raise type(error)(f"Item {place}: {error}") from error
        answers = self.engine.insert(jobs, rule=_rule(task.unique))
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
                    self._announce(new, job, task)

    def _announce(self, new: NewJob, inserted: InsertedJob, task: Task) -> None:
        result = from_insert(new, inserted, task, self.alias)
        compat.task_enqueued.send_robust(type(self), task_result=result)


@sync_to_async(thread_sensitive=True)
def _on_the_sync_thread(enqueue: Callable[..., TaskResult], *args: Any) -> TaskResult:
    # Wrapped once: to wrap anew for each job takes longer than to encode it.
    return enqueue(*args)


def _rule(unique: Unique) -> UniqueRule:
    return UniqueRule(
        window=unique.window,
        holds_completed=unique.scope == "live+completed",
        replace=unique.debounce is not None or unique.on_conflict == "replace",
        reschedule=unique.debounce is not None or unique.on_conflict == "reschedule",
        follow_up=unique.has_follow_up,
    )


def _duplicate_error(task: Task, job: InsertedJob, where: str = "") -> DuplicateJob:
    return DuplicateJob(f"{where}Job {job.id} ({job.state}) of {task.module_path} holds the unique key.", str(job.id))


class _Ids(Sequence[str]):
    """Ids as strings, kept as eight bytes each: a million of them must not take a hundred megabytes."""

    def __init__(self, ids: array[int]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [str(id) for id in self._ids[place]]
        return str(self._ids[place])

    def __repr__(self) -> str:
        return f"<{len(self)} ids>"


def _is_plain_pair(item: object) -> TypeGuard[_Pair]:
    """Say whether it is a pair as almost all are; anything else is looked at more closely."""
    return type(item) is tuple and len(item) == 2 and type(item[0]) in (tuple, list) and type(item[1]) is dict


def _pair(item: object) -> _Pair:
    if (
        isinstance(item, list | tuple)
        and len(item) == 2
        and isinstance(item[0], list | tuple)
        and isinstance(item[1], Mapping)
    ):
        return cast("_Pair", tuple(item))
    raise InvalidArguments(f"each item is a pair of args and kwargs, like ((1, 2), {{'name': 3}}), not {item!r:.100}.")
