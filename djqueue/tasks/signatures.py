"""Check that a task can be called with some arguments before they are stored.

Only the number of positional arguments and the names of the keyword arguments matter. Each such shape is tried once per
function, and later enqueues look it up in a set. The check uses the outermost function: a decorator's wrapper usually takes
``*args, **kwargs`` and may add arguments before it calls the wrapped function, so the wrapped function is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any

from djqueue import compat
from djqueue.exceptions import InvalidArguments

if TYPE_CHECKING:
    _AnyTask = compat.Task[..., Any]

_MOST_SHAPES = 1000
"""A function with ``**kwargs`` may be called with an unlimited number of names, so the cache is limited."""


def check_arguments(task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise ``InvalidArguments`` naming the parameter if the task's function cannot be called with these arguments."""
    _check(_fitting(task.func, task.takes_context), task, args, kwargs)


def checker(task: _AnyTask) -> Callable[[Sequence[Any], Mapping[str, Any]], None]:
    """Return ``check_arguments`` bound to one task, for many jobs."""
    return partial(_check, _fitting(task.func, task.takes_context), task)


def _check(fitting: set[object], task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    shape = (len(args), *kwargs) if kwargs else len(args)
    if shape in fitting:
        return
    if problem := misfit(task, args, kwargs):
        raise InvalidArguments(problem)
    if len(fitting) < _MOST_SHAPES:
        fitting.add(shape)


def misfit(task: _AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why the task's function cannot be called with these arguments, or an empty string if it can."""
    if (known := _signature(task.func)) is None:
        return ""
    context = (None,) if task.takes_context else ()
    try:
        known.bind(*context, *args, **kwargs)
    except TypeError as error:
        names = list(known.parameters)[1 if context else 0 :]
        return (
            f"{task.module_path}() cannot be called with these arguments: {error}."
            f" Its parameters are: {', '.join(names) or 'none'}."
        )
    return ""


@cache
def _fitting(function: Callable[..., Any], takes_context: bool) -> set[object]:
    """Return the shapes of arguments that the function is known to accept."""
    return set()


@lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> Signature | None:
    try:
        return signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
