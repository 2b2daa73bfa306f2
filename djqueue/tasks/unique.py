"""Decide whether two jobs are duplicates, and what happens to the second one.

A key is a hash of the task's name and of the values that a rule selects: a key from the caller, the result of ``keys``,
some arguments, or all of them. The queue is not part of the key: a job that is moved to another queue still does the same
work. Arguments are bound as the function will receive them, so ``send(1)``, ``send(user_id=1)`` and keywords in another
order have the same key, and an omitted argument counts as its default. Because the task's name is part of the key, two
tasks with the key ``"order-7"`` do not collide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from inspect import Parameter, Signature, signature
from typing import Any, Literal, cast, get_args

from djqueue.compat import InvalidTask
from djqueue.exceptions import InvalidArguments, InvalidJob
from djqueue.jobs.durations import Duration, parse_duration
from djqueue.jobs.records import LIVE_ONLY, UniqueRule

Scope = Literal["live", "live+completed"]
OnConflict = Literal["return", "raise", "replace", "reschedule"]
OnRunning = Literal["return", "follow_up"]

_dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """When two jobs of a task are duplicates, and what happens to the second one. ``unique=True`` means ``Unique()``.

    A job holds its key while it is live: from its enqueue, through every retry and rescue, until it is completed,
    discarded, cancelled or deleted. Two live jobs never hold the same key, whatever the other options are.
    """

    key: str | None = None
    """A key such as ``"order-7"``, used instead of the arguments."""
    args: Sequence[str | int] | None = None
    """The arguments that make up the key, by name or position. None: all of them."""
    keys: Callable[..., Any] | Sequence[str] | None = None
    """A function of the arguments that returns the key (anything that JSON can hold), or paths into the arguments,
    like ``["order.id"]`` for ``order["id"]``."""
    period: Duration | None = None
    """The key is held for at least this duration from the enqueue, however the job ends. Only a job that is cancelled
    before it ran releases its key earlier."""
    scope: Scope = "live"
    """``"live+completed"``: a completed job keeps holding the key for ``period``, or without one for as long as the job is
    kept in the history. A discarded or cancelled job releases it, so its work can be enqueued again."""
    on_conflict: OnConflict = "return"
    """``"return"``: nothing is stored, and ``enqueue`` returns the result of the job that holds the key.
    ``"raise"``: nothing is stored, and ``enqueue`` raises ``DuplicateJob``.
    ``"replace"``: while that job waits, it takes the new arguments, priority, ``max_attempts``, expiry and context.
    ``"reschedule"``: while that job waits, it takes the new time to run; without ``run_after``, that is now.
    A job that runs, or has ended, is never changed. New arguments never run before their own ``run_after``."""
    on_running: OnRunning | None = None
    """What happens while the job that holds the key runs. ``"return"``: ``on_conflict`` applies, and a running job is not
    changed. ``"follow_up"``: the newest arguments are kept in one follow-up job, which starts after the running job has
    ended, however it ends. None: ``"follow_up"`` with ``debounce``, otherwise ``"return"``."""
    debounce: Duration | None = None
    """The job runs this long after the last enqueue, with the newest arguments: each enqueue postpones it."""
    throttle: Duration | None = None
    """Store at most one job, the first, in this duration; later ones are duplicates until it has passed. The same as
    ``period``."""

    def __post_init__(self) -> None:
        # A frozen dataclass with a list in it cannot be hashed.
        for name in ("args", "keys"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        for name in ("period", "debounce", "throttle"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _as_period(name, value))
        if problem := self._problem():
            raise InvalidTask(problem)

    @property
    def window(self) -> timedelta | None:
        """The minimum time for which the key is held after the enqueue."""
        return cast("timedelta | None", self.period or self.throttle)

    @property
    def outlives_the_job(self) -> bool:
        """Whether a job that has ended may still hold the key."""
        return self.window is not None or self.scope != "live"

    @property
    def has_follow_up(self) -> bool:
        return (self.on_running or ("follow_up" if self.debounce else "return")) == "follow_up"

    def problem_with(self, function: Callable[..., Any], takes_context: bool) -> str:
        """Return which argument of the rule the function does not have, or an empty string."""
        known = _signature(function, takes_context)
        if known is None:
            return ""
        names = [each.name for each in known.parameters.values() if each.kind not in _VARIADIC]
        kinds = {each.kind for each in known.parameters.values()}
        positional = [
            each for each in known.parameters.values() if each.kind not in (*_VARIADIC, Parameter.KEYWORD_ONLY)
        ]
        paths = self.keys if isinstance(self.keys, tuple) else ()
        for chosen in [*(self.args or ()), *(path.split(".")[0] for path in paths)]:
            if isinstance(chosen, str):
                is_known = chosen in names or Parameter.VAR_KEYWORD in kinds
            else:
                is_known = chosen < len(positional) or Parameter.VAR_POSITIONAL in kinds
            if not is_known:
                return (
                    f"unique names the argument {chosen!r}, which {function.__qualname__}() does not have. "
                    f"It has: {', '.join(names) or 'none'}."
                )
        return ""

    def _problem(self) -> str:
        for name, words in (
            ("scope", get_args(Scope)),
            ("on_conflict", get_args(OnConflict)),
            ("on_running", (*get_args(OnRunning), None)),
        ):
            if (value := getattr(self, name)) not in words:
                return f"Invalid {name} {value!r} in Unique: use one of {', '.join(map(repr, words))}."
        return self._problem_of_choice() or self._problem_of_combination()

    def _problem_of_choice(self) -> str:
        given = [name for name in ("key", "args", "keys") if getattr(self, name) is not None]
        if len(given) > 1:
            return f"Unique: {' and '.join(given)} exclude each other: each says what the key is made of."
        key: object = self.key
        if key is not None and not (isinstance(key, str) and key):
            return f"Invalid key {self.key!r} in Unique: use a string that is not empty."
        if self.args is not None and not (
            isinstance(self.args, tuple)
            and self.args
            and all((type(each) is int and each >= 0) or (isinstance(each, str) and each) for each in self.args)
        ):
            return f"Invalid args {self.args!r} in Unique: use a list of names or positions of arguments, like ['user_id']."
        if not (
            self.keys is None
            or callable(self.keys)
            or (
                isinstance(self.keys, tuple)
                and self.keys
                and all(isinstance(path, str) and all(path.split(".")) for path in self.keys)
            )
        ):
            return (
                f"Invalid keys {self.keys!r} in Unique: use a function of the arguments, or a list of paths into them,"
                " like ['order.id']."
            )
        return ""

    def _problem_of_combination(self) -> str:
        if self.debounce is not None and (self.on_conflict != "return" or self.outlives_the_job):
            return (
                "Unique: debounce says by itself what becomes of a duplicate. "
                "It goes with neither on_conflict, period, throttle nor scope='live+completed'."
            )
        if self.period is not None and self.throttle is not None:
            return "Unique: period and throttle mean the same. Use one of them."
        if self.throttle is not None and self.scope != "live":
            return "Unique: throttle counts every job, however it ends. With scope='live+completed' say period."
        if self.has_follow_up and (self.outlives_the_job or self.on_conflict == "raise"):
            return (
                "Unique: on_running='follow_up' enqueues a job after the running one, "
                "and period, throttle, scope='live+completed' and on_conflict='raise' say that there must be none."
            )
        return ""


def _as_period(name: str, value: object) -> timedelta:
    try:
        period = parse_duration(value)
    except ValueError:
        period = timedelta()
    if period <= timedelta():
        raise InvalidTask(
            f"Invalid {name} {value!r:.120} in Unique: use seconds, a timedelta or a text like '90s' or '2 days',"
            " more than 0 and at most 100 years."
        )
    return period


def problem_of(value: object) -> str:
    """Return what is wrong with a value of ``unique=``, or an empty string."""
    if value is None or isinstance(value, bool | Unique) or (isinstance(value, str) and value):
        return ""
    return f"Invalid unique {value!r}: use True, a key of your own or a Unique(...)."


def as_rule(value: Unique | bool | str | None) -> Unique | None:
    """Convert a value of ``unique=`` to a rule, or to None for jobs that are not unique."""
    if isinstance(value, str):
        return Unique(key=value)
    return Unique() if value is True else value or None


def rule_of(unique: Unique | None) -> UniqueRule:
    """Return the part of a task's rule that the store applies."""
    if unique is None:
        return LIVE_ONLY
    return UniqueRule(
        window=unique.window,
        holds_completed=unique.scope == "live+completed",
        replace=unique.debounce is not None or unique.on_conflict == "replace",
        reschedule=unique.debounce is not None or unique.on_conflict == "reschedule",
        follow_up=unique.has_follow_up,
        is_exclusive=unique.on_conflict == "raise",
    )


def key_of(
    rule: Unique,
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    takes_context: bool = False,
) -> str:
    """Return the key of a job (40 characters). Pass the arguments as the function will receive them after JSON."""
    chosen: Any
    if rule.key is not None:
        kind, chosen = "key", rule.key
    elif callable(rule.keys):
        kind = "keys"
        try:
            chosen = rule.keys(*args, **kwargs)
        except Exception as error:
            raise InvalidJob(f"The keys function of {name} failed: {type(error).__name__}: {error}") from error
    else:
        arguments = _bind(function, takes_context, args, kwargs)
        if arguments is None:
            if rule.args is not None or rule.keys is not None:
                raise InvalidArguments(f"{name} does not take these arguments, so its unique key cannot be computed.")
            kind, chosen = "unbound", [args, kwargs]
        elif rule.args is not None:
            kind = "args"
            positions = _positions(function, takes_context)
            names = [each if isinstance(each, str) else positions.get(each, f"*{each}") for each in rule.args]
            chosen = [_argument(arguments, each) for each in names]
        elif rule.keys is not None:
            kind, chosen = "paths", [_at(arguments, path) for path in rule.keys]
        else:
            kind, chosen = "all", arguments
    try:
        text = _dumps([name, kind, chosen])
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"The unique key of {name} cannot be made of {chosen!r:.200}: {error}") from None
    return blake2b(text.encode(), digest_size=20).hexdigest()


@lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any], takes_context: bool) -> Signature | None:
    """Return the function's signature without its context parameter."""
    try:
        found = signature(function)
    except (TypeError, ValueError):
        return None
    parameters = list(found.parameters.values())[1 if takes_context else 0 :]
    return found.replace(parameters=parameters)


def _bind(
    function: Callable[..., Any], takes_context: bool, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the arguments by name, defaults included; None if the function does not take them."""
    known = _signature(function, takes_context)
    if known is None:
        return None
    if (simple := _simple(function, takes_context)) is not None:
        # The same result as Signature.bind(), in a fifth of the time.
        names, defaults = simple
        arguments = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        is_bound = len(arguments) == len(names) >= len(args) and kwargs.keys().isdisjoint(names[: len(args)])
        return arguments if is_bound and arguments.keys() == set(names) else None
    try:
        bound = known.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    arguments = {}
    for place, (name, parameter) in enumerate(known.parameters.items()):
        if parameter.kind is Parameter.VAR_POSITIONAL:
            # The names start with an asterisk so that they cannot collide with names of parameters.
            arguments |= {f"*{place + more}": value for more, value in enumerate(bound.get(name, ()))}
        elif parameter.kind is Parameter.VAR_KEYWORD:
            arguments |= {f"**{key}": value for key, value in bound.get(name, {}).items()}
        elif name in bound:
            arguments[name] = bound[name]
        else:
            arguments[name] = _default(parameter.default)
    return arguments


@lru_cache(maxsize=1024)
def _simple(function: Callable[..., Any], takes_context: bool) -> tuple[tuple[str, ...], dict[str, Any]] | None:
    """Return the parameters' names and defaults if each parameter can be passed by position and by name, else None."""
    known = _signature(function, takes_context)
    if known is None or any(each.kind is not Parameter.POSITIONAL_OR_KEYWORD for each in known.parameters.values()):
        return None
    defaults = {
        name: _default(each.default) for name, each in known.parameters.items() if each.default is not Parameter.empty
    }
    return tuple(known.parameters), defaults


def _default(value: Any) -> Any:
    """Return a default as it would come back from JSON if the caller had passed it."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return {"*": "default"}


def _positions(function: Callable[..., Any], takes_context: bool) -> dict[int, str]:
    known = _signature(function, takes_context)
    assert known is not None
    return {
        place: name
        for place, (name, parameter) in enumerate(known.parameters.items())
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    }


def _argument(arguments: Mapping[str, Any], name: str) -> Any:
    return arguments.get(name, arguments.get(f"**{name}"))


def _at(arguments: Mapping[str, Any], path: str) -> Any:
    first, *rest = path.split(".")
    value = _argument(arguments, first)
    for step in rest:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value
