"""``@task`` and ``Task``: Django's Task with djqueue's options.

An option is one field with its check (``options.py``). ``task()``, ``using()``, pickling and validation read the fields, so
a new option needs no other change than its keyword in the overload of ``task()``.

``Task`` is a plain subclass of the framework's slotted dataclass, without ``slots=True`` of its own, where
zero-argument ``super()`` fails. Django 6.0 has no defaults for the base fields, so all of them are passed
explicitly.

Tasks accept the options whatever their backend is; a backend that is not djqueue's ignores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import cached_property
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Self, cast, overload

from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone

from djqueue import compat, stores
from djqueue.cron.entry import MAX_NAME, Cron, CronDefinition
from djqueue.exceptions import InvalidJob
from djqueue.jobs.encoding import encode_arguments
from djqueue.jobs.records import BulkResult
from djqueue.tasks import backoff as backoffs
from djqueue.tasks import options as rules
from djqueue.tasks import unique as uniques
from djqueue.tasks.backoff import Backoff
from djqueue.tasks.results import TaskResult, UnknownTaskResult
from djqueue.tasks.signatures import misfit
from djqueue.tasks.unique import Unique
from djqueue.workflows.canvas import Signature

if TYPE_CHECKING:
    _Task = compat.Task[..., Any]
else:
    _Task = compat.Task

KNOWN: dict[str, Task] = {}
"""The tasks of this process by path. ``djqueue.tasks.registry`` looks them up here."""
FORMER_NAMES: dict[str, Task] = {}
"""The same tasks by their ``aliases``."""
MAX_CRON_BYTES = 64 * 1024
"""Maximum size of the arguments of a cron entry as JSON."""


@dataclass(frozen=True, kw_only=True)
class Task(_Task):
    max_attempts: int | None = field(default=None, metadata=rules.option(rules.max_attempts_problem, per_job=True))
    """How many times the job is attempted before it is discarded. None: the backend's ``max_attempts``."""
    backoff: Backoff = field(default=None, metadata=rules.option(backoffs.problem_of))
    """How long to wait before the next attempt; see ``djqueue.Exponential``. None: 15 + 2 ** attempt seconds."""
    retry_on: tuple[type[BaseException], ...] = field(
        default=(Exception,), metadata=rules.option(rules.exceptions_problem("retry_on"), convert=rules.as_tuple)
    )
    """Only these exceptions are retried; any other discards the job at once. With the default, ``SystemExit`` and other
    exceptions that do not inherit from ``Exception`` are retried as well."""
    discard_on: tuple[type[BaseException], ...] = field(
        default=(), metadata=rules.option(rules.exceptions_problem("discard_on"), convert=rules.as_tuple)
    )
    """These exceptions discard the job at once. They take precedence over ``retry_on``."""
    timeout: timedelta | None = field(
        default=None, metadata=rules.option(rules.duration_problem("timeout"), convert=rules.as_timedelta)
    )
    """Maximum duration of one attempt. After it the attempt is asked to stop, and later it is stopped."""
    max_age: timedelta | None = field(
        default=None, metadata=rules.option(rules.duration_problem("max_age"), per_job=True, convert=rules.as_timedelta)
    )
    """A job that has not started within this duration of its insert is cancelled instead of run."""
    transactional: bool = field(default=False, metadata=rules.option(rules.bool_problem("transactional")))
    """True: the function's writes to the queue's database and the job's completion commit in one transaction."""
    durability: str | None = field(default=None, metadata=rules.option(rules.durability_problem, per_job=True))
    """``"relaxed"``: an enqueue outside a transaction does not wait until the job is on disk. None: the setting of the
    queue or of the backend."""
    compress: bool = field(default=False, metadata=rules.option(rules.bool_problem("compress"), per_job=True))
    """True: arguments of 1 KB and more are stored compressed if that makes them smaller. SQL cannot query compressed arguments."""
    aliases: tuple[str, ...] = field(default=(), metadata=rules.option(rules.aliases_problem, convert=rules.as_tuple))
    """Former names of the task. Jobs enqueued under these names run it."""
    unique: Unique | None = field(
        default=None, metadata=rules.option(uniques.problem_of, per_job=True, convert=uniques.as_rule)
    )
    """Store no second job for the same work: True, a key, or a ``Unique(...)``. None: every enqueue stores a job."""
    run_in: timedelta | None = field(default=None, metadata=rules.option(rules.run_in_problem))
    """``run_after`` as a timedelta, counted from the insert by the store's clock."""
    cron: str | Cron | Sequence[str | Cron] | None = field(
        default=None, metadata=rules.option(rules.cron_problem, convert=rules.as_crons)
    )
    """Schedule on which workers enqueue the task: an expression, a ``Cron``, or a list of them. Converted to a tuple of ``Cron``."""
    timezone: str | None = field(default=None, metadata=rules.option(rules.timezone_problem))
    """Time zone of the task's cron entries that do not set one. None: the project's TIME_ZONE."""

    def __post_init__(self) -> None:
        for each in _OPTIONS:
            value = getattr(self, each.name)
            if problem := each.metadata["problem_of"](value):
                raise compat.InvalidTask(problem)
            if (convert := each.metadata["convert"]) is not None:
                object.__setattr__(self, each.name, convert(value))
            elif isinstance(value, list | set):
                # A frozen dataclass with a list in it cannot be hashed.
                object.__setattr__(self, each.name, rules.frozen(value))
        if self.run_in is not None and stores.find(self.backend) is None:
            object.__setattr__(self, "run_after", timezone.now() + self.run_in)
            object.__setattr__(self, "run_in", None)
        super().__post_init__()
        if self.transactional and self.is_async:
            raise compat.InvalidTask("transactional=True needs a sync function: Django's transactions are sync.")
        if self.unique is not None:
            if problem := self.unique.problem_with(self.func, self.takes_context):
                raise compat.InvalidTask(problem)
            if self.unique.debounce is not None and (self.run_after is not None or self.run_in is not None):
                raise compat.InvalidTask(
                    "debounce and run_after cannot be combined: debounce sets the time at which the job runs."
                )
        if self.cron:
            self._check_cron()
        self._register()

    @classmethod
    def of(cls, task: compat.Task[..., Any]) -> Task:
        """Convert a task of the framework to a ``Task`` with the same settings."""
        if isinstance(task, Task):
            return task
        return cls(**{each.name: getattr(task, each.name) for each in fields(compat.Task)})

    def _register(self) -> None:
        """Make the task known by its path.

        A copy made by ``using()`` has the same function and does not replace the original. A task of a reloaded module
        has another function and replaces it.
        """
        known = KNOWN.get(self.module_path)
        if known is None or known.func is not self.func:
            KNOWN[self.module_path] = self
            for alias in self.aliases:
                FORMER_NAMES[alias] = self

    @property
    def cron_definitions(self) -> dict[str, CronDefinition]:
        """The task's crontab entries by name."""
        zone = self.timezone or settings.TIME_ZONE or "UTC"
        definitions: dict[str, CronDefinition] = {}
        for place, each in enumerate(cast("tuple[Cron, ...]", self.cron or ()), 1):
            name = each.name or (self.module_path if place == 1 else f"{self.module_path}:{place}")
            if name in definitions:
                raise compat.InvalidTask(f"Two cron entries of {self.module_path} have the name {name!r}.")
            definitions[name] = each.definition(self.module_path, zone)
        return definitions

    def cron_problem(self, name: str, definition: CronDefinition) -> str:
        """Return why an entry cannot run this task, or an empty string if it can."""
        if not name or len(name) > MAX_NAME or not name.isprintable():
            return f"Invalid name of a cron entry {name!r:.250}: use 1–{MAX_NAME} printable characters."
        if problem := definition.problem():
            return problem
        if not isinstance(definition.args, list | tuple) or not isinstance(definition.kwargs, Mapping):
            return "Invalid args or kwargs: use a list for args and a dict for kwargs."
        try:
            definition.as_json()
            encode_arguments(definition.args, definition.kwargs, MAX_CRON_BYTES)
        except InvalidJob as error:
            return str(error)
        if problem := misfit(self, definition.args, definition.kwargs):
            return problem
        try:
            # The queue must be one of the backend's, and the priority a valid one.
            self.with_overrides(definition)
        except compat.InvalidTask as error:
            return str(error)
        return ""

    def with_overrides(self, definition: CronDefinition) -> Self:
        """Return the task with the queue and the priority of an entry."""
        if not definition.queue and definition.priority is None:
            return self
        return replace(
            self,
            cron=None,
            queue_name=definition.queue or self.queue_name,
            priority=self.priority if definition.priority is None else definition.priority,
        )

    def _check_cron(self) -> None:
        for name, definition in self.cron_definitions.items():
            if problem := self.cron_problem(name, definition):
                raise compat.InvalidTask(f"The cron entry {name!r}: {problem}")

    @cached_property
    def is_async(self) -> bool:
        return iscoroutinefunction(self.func)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | float | str | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> Self:
        """Return a copy with other settings for its jobs; ``run_after`` is a time, or a duration: seconds, "2 days", a timedelta.

        Only options that are stored in the job's row can be set per job. The others, such as ``backoff`` and ``timeout``,
        are read from the task in the worker that runs the job.
        """
        rules.refuse_unknown("using()", options, _PER_JOB_OPTIONS, _STATIC_OPTIONS)
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "backend": backend,
            **options,
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if isinstance(key := options.get("unique"), str) and key and self.unique is not None:
            # The caller gives the key of this job. The task's rule still decides about duplicates.
            changes["unique"] = replace(self.unique, key=key, args=None, keys=None)
        if run_after is not None:
            start = rules.as_start(run_after)
            is_time = isinstance(start, datetime)
            changes.update(run_in=None if is_time else start, run_after=start if is_time else None)
        return replace(self, **changes)

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for attributes that do not exist.
        raise AttributeError(rules.missing_attribute(type(self).__name__, name))

    def enqueue(self, /, *args: Any, **kwargs: Any) -> TaskResult:
        """Store a job in the caller's transaction, if there is one, and return its result."""
        return cast(TaskResult, self.get_backend().enqueue(self, args, kwargs))  # type: ignore[arg-type]  # a tuple

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> TaskResult:
        """See ``enqueue``."""
        return cast(TaskResult, await self.get_backend().aenqueue(self, args, kwargs))  # type: ignore[arg-type]

    def s(self, /, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature for ``chain`` and ``group``: the result of what runs before is the first argument."""
        return Signature(self, args, kwargs)

    def si(self, /, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature that does not take the result of what runs before."""
        return Signature(self, args, kwargs, takes_result=False)

    def enqueue_many(
        self,
        items: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        batch_size: int = 5000,
        on_progress: Callable[[int], None] | None = None,
    ) -> BulkResult:
        """Store one job per pair of args and kwargs, all or none of them.

        ``items`` may be a generator of any length: it is read ``batch_size`` items at a time and never
        while a statement runs, so it may use the same database connection. A bad item raises with its
        position, and nothing is stored. ``on_progress`` is called after each batch with the number of items
        stored so far; they become visible to others only at the end.
        """
        backend = self.get_backend()
        if not isinstance(backend, stores.StoreBackend):
            return BulkResult(*_enqueue_one_by_one(self, items, on_progress))
        return backend.enqueue_many(self, items, batch_size=batch_size, on_progress=on_progress)

    async def aenqueue_many(
        self,
        items: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        batch_size: int = 5000,
        on_progress: Callable[[int], None] | None = None,
    ) -> BulkResult:
        """See ``enqueue_many``."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(
            items, batch_size=batch_size, on_progress=on_progress
        )

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of one of this task's jobs.

        Raise ``TaskResultDoesNotExist``, or ``TaskResultMismatch`` if the id is that of another task's job.
        """
        try:
            result = self.get_backend().get_result(result_id)
        except UnknownTaskResult as error:
            raise compat.TaskResultMismatch(f"Task does not match. {error}") from None
        if result.task.func != self.func:
            raise compat.TaskResultMismatch(f"Task does not match (received {result.task.module_path!r})")
        return cast(TaskResult, result)

    async def aget_result(self, result_id: str) -> TaskResult:
        """See ``get_result``."""
        return await sync_to_async(self.get_result, thread_sensitive=True)(result_id)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function by name, as Django 6.1 does."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "func"}
        return _rebuild, (type(self), self.func.__module__, self.func.__qualname__, values)


_OPTIONS = tuple(each for each in fields(Task) if "problem_of" in each.metadata)
_STATIC_OPTIONS = tuple(each.name for each in _OPTIONS if each.name != "run_in")
_PER_JOB_OPTIONS = tuple(each.name for each in _OPTIONS if each.metadata["per_job"])


@overload
def task(function: Callable[..., Any], /) -> Task: ...
@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: bool = ...,
    max_attempts: int | None = ...,
    backoff: Backoff = ...,
    retry_on: type[BaseException] | Sequence[type[BaseException]] = ...,
    discard_on: type[BaseException] | Sequence[type[BaseException]] = ...,
    timeout: float | str | timedelta | None = ...,
    max_age: float | str | timedelta | None = ...,
    transactional: bool = ...,
    durability: str | None = ...,
    compress: bool = ...,
    aliases: Sequence[str] = ...,
    unique: Unique | bool | str | None = ...,
    cron: str | Cron | Sequence[str | Cron] | None = ...,
    timezone: str | None = ...,
) -> Callable[[Callable[..., Any]], Task]: ...
def task(
    function: Callable[..., Any] | None = None,
    *,
    priority: int = compat.DEFAULT_TASK_PRIORITY,
    queue_name: str = compat.DEFAULT_TASK_QUEUE_NAME,
    backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Any,
) -> Task | Callable[[Callable[..., Any]], Task]:
    """Make a task of a function: ``@task`` or ``@task(queue_name="mail", max_attempts=5)``.

    Accepts the keywords of Django's decorator and djqueue's options, on every supported version of Django. Always
    returns a ``djqueue.Task``, whatever the backend is.
    """
    if "run_after" in options or "run_in" in options:
        raise TypeError(
            "run_after cannot be defined statically with the @task decorator. "
            "Use .using(run_after=...) to set it dynamically."
        )
    rules.refuse_unknown("@task", options, _STATIC_OPTIONS, _STATIC_OPTIONS)
    given: object = function
    if given is not None and not callable(given):
        hint = f" Did you mean queue_name={given!r}?" if isinstance(given, str) else ""
        raise TypeError(f"Invalid argument {given!r} of @task: use a function or keywords.{hint}")

    def wrapper(func: Callable[..., Any]) -> Task:
        return Task(
            func=func,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,
            **options,
        )

    return wrapper if function is None else wrapper(function)


def _enqueue_one_by_one(
    task: Task,
    items: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
    on_progress: Callable[[int], None] | None,
) -> tuple[int, Sequence[str]]:
    ids = [task.enqueue(*args, **kwargs).id for args, kwargs in items]
    if on_progress is not None:
        on_progress(len(ids))
    return len(ids), ids


def _rebuild(cls: type[Task], module: str, qualname: str, values: dict[str, Any]) -> Task:
    """Unpickle a task."""
    found: Any = KNOWN.get(f"{module}.{qualname}")
    if found is None:
        found = import_module(module)
        try:
            for name in qualname.split("."):
                found = getattr(found, name)
        except AttributeError as error:
            raise ValueError(f"Expected {module}.{qualname} to point to a Task instance.") from error
    if not isinstance(found, compat.Task):
        raise ValueError(f"Expected {module}.{qualname} to point to a Task instance.")
    return cls(func=found.func, **values)
