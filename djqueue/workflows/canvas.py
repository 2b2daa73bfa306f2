"""Signatures, chains and groups: calls of tasks that are written down to be enqueued together.

::

    chain(download.s(url), resize.s(width=200), publish.si()).enqueue()
    (group(resize.s(key, width) for width in widths) | collect.s()).enqueue()

``task.s(…)`` takes the result of what runs before it as its first argument; behind a group that is the list of its members'
results, in order. ``task.si(…)`` takes its own arguments only. Nothing here knows a store: the backend of the first task plans
and stores the whole (``plan.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from asgiref.sync import sync_to_async

from djqueue import compat, stores
from djqueue.exceptions import ForeignBackend, InvalidWorkflow

if TYPE_CHECKING:
    _AnyTask = compat.Task[..., Any]

OnFailure = Literal["fail", "ignore", "drop", "compensate"]
"""What a job does whose dependency does not complete: it is discarded, cancelled, deleted, or stopped by its own dependencies.

``"fail"``: it is cancelled, with the reason among its errors, and so is what depends on it.
``"ignore"``: it runs, with None in the place of the missing result.
``"drop"``: it runs, and the missing result is left out of a list of results; elsewhere it is None.
``"compensate"``: it runs only then. If the dependency completes, the job is cancelled.
"""


_LABELLED = 8
"""How many items of a chain or a group are in its label."""


def check_on_failure(value: object, *, also: tuple[str, ...] = ()) -> None:
    words = (*get_args(OnFailure), *also)
    if value is not None and value not in words:
        raise InvalidWorkflow(f"Invalid on_failure {value!r}: use {', '.join(map(repr, words[:-1]))} or {words[-1]!r}.")


class Canvas(ABC):
    """A signature, a chain or a group."""

    __slots__ = ()

    @abstractmethod
    def signatures(self) -> Iterator[Signature]:
        """Yield the signatures in it, in the order of their jobs."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short name, made of those of the functions."""

    def enqueue(self) -> Any:
        """Store all jobs in the caller's transaction, if there is one; return an ``EnqueuedWorkflow``."""
        first = next(self.signatures())
        return backend_of(first.task.backend, "Chains and groups").enqueue_workflow(self)

    async def aenqueue(self) -> Any:
        """See ``enqueue``."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)()

    def __or__(self, other: object) -> Chain:
        """Return a chain: ``other`` runs after this."""
        if not isinstance(other, Canvas):
            return NotImplemented
        return Chain((*_links(self), *_links(other)))


@dataclass(frozen=True, slots=True, repr=False)
class Signature(Canvas):
    """A task with arguments. Immutable: ``using()`` and ``|`` return new objects."""

    task: _AnyTask
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    takes_result: bool = True
    """Whether the result of what runs before is its first argument: ``.s()`` does, ``.si()`` does not."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "kwargs", MappingProxyType(dict(self.kwargs)))

    def using(self, **options: Any) -> Signature:
        """Return a copy whose job has other options, those of ``Task.using()``."""
        return replace(self, task=self.task.using(**options))

    def signatures(self) -> Iterator[Signature]:
        yield self

    def enqueue(self) -> Any:
        """Store one job; return its ``TaskResult``."""
        return self.task.enqueue(*self.args, **self.kwargs)

    @property
    def label(self) -> str:
        return self.task.func.__name__

    def __hash__(self) -> int:
        # The arguments may hold lists and dicts.
        return hash((self.task.module_path, len(self.args), frozenset(self.kwargs), self.takes_result))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.task, self.args, dict(self.kwargs), self.takes_result)

    def __repr__(self) -> str:
        arguments = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.label}.{'s' if self.takes_result else 'si'}({', '.join(arguments)})"


@dataclass(frozen=True, slots=True, repr=False)
class Chain(Canvas):
    """Each item runs after the one before it."""

    items: tuple[Canvas, ...]
    on_failure: OnFailure | None = None
    """What an item does if the one before it does not complete. None: as the item before says, otherwise ``"fail"``."""

    def signatures(self) -> Iterator[Signature]:
        for item in self.items:
            yield from item.signatures()

    @property
    def label(self) -> str:
        return " | ".join(item.label for item in self.items[:_LABELLED])

    def __repr__(self) -> str:
        return f"chain({', '.join(map(repr, self.items))}{_option(self.on_failure)})"


@dataclass(frozen=True, slots=True, repr=False)
class Group(Canvas):
    """All members run at the same time. What follows in a chain waits for all of them."""

    members: tuple[Canvas, ...]
    on_failure: OnFailure | None = None
    """What follows does if a member does not complete. None: ``"fail"``, unless the chain says otherwise."""

    def signatures(self) -> Iterator[Signature]:
        for member in self.members:
            yield from member.signatures()

    @property
    def label(self) -> str:
        return f"group({', '.join(dict.fromkeys(member.label for member in self.members[:_LABELLED]))})"

    def __repr__(self) -> str:
        return f"group({', '.join(map(repr, self.members))}{_option(self.on_failure)})"


def chain(*items: Canvas | Iterable[Canvas], on_failure: OnFailure | None = None) -> Chain:
    """Run the items one after the other. A single iterable of items is accepted, too."""
    check_on_failure(on_failure)
    return Chain(_members("chain", items), on_failure)


def group(*members: Canvas | Iterable[Canvas], on_failure: OnFailure | None = None) -> Group:
    """Run the members at the same time. A single iterable of members is accepted, too."""
    check_on_failure(on_failure)
    return Group(_members("group", members), on_failure)


def backend_of(alias: str, what: str) -> stores.StoreBackend:
    """Return the backend of an entry of TASKS; raise ``ForeignBackend`` if it is not one of djqueue's."""
    backend = compat.task_backends[alias]
    if not isinstance(backend, stores.StoreBackend):
        raise ForeignBackend(
            f"{what} need a backend of djqueue, and {alias!r} in TASKS is {type(backend).__name__}, which runs or keeps each task on"
            " its own. Use djqueue.backends.PostgresBackend or RedisBackend, or enqueue the tasks one by one."
        )
    return backend


def _links(canvas: Canvas) -> tuple[Canvas, ...]:
    # A chain with a rule of its own stays one item, because the rule is not that of the items behind it.
    return canvas.items if isinstance(canvas, Chain) and canvas.on_failure is None else (canvas,)


def _members(what: str, given: tuple[Canvas | Iterable[Canvas], ...]) -> tuple[Canvas, ...]:
    members: Iterable[object] = given
    if len(given) == 1 and not isinstance(given[0], Canvas) and isinstance(given[0], Iterable):
        members = given[0]
    found: list[Canvas] = []
    for position, member in enumerate(members):
        if not isinstance(member, Canvas):
            hint = " Write task.s(…) with its arguments." if isinstance(member, compat.Task) else ""
            raise InvalidWorkflow(
                f"Invalid item {position} of {what}(): {member!r:.200}. Use signatures, chains and groups.{hint}"
            )
        found.append(member)
    if not found:
        raise InvalidWorkflow(f"Invalid {what}(): it is empty. Use at least one signature, chain or group.")
    return tuple(found)


def _option(on_failure: str | None) -> str:
    return f", on_failure={on_failure!r}" if on_failure else ""
