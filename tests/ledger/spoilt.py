"""Tasks around which the project's own code fails while their outcome is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from djqueue import Retry, Snooze, task


@dataclass
class LaterOn(Retry):
    """Its ``__init__`` is made by dataclass and does not call that of Retry."""

    code: int = 0


@dataclass
class SleepOn(Snooze):
    code: int = 0


class Unaskable(type):
    def __instancecheck__(cls, instance: object) -> NoReturn:
        raise SystemExit("cannot be asked")


class Odd(Exception, metaclass=Unaskable):
    pass


class BrokenText(str):
    def _fail(self, *args: object) -> NoReturn:
        raise KeyboardInterrupt("broken text")

    __len__ = __contains__ = __getitem__ = __format__ = __str__ = isascii = encode = replace = _fail  # type: ignore[assignment]
    __hash__ = str.__hash__


class Textless(Exception):
    def __str__(self) -> str:
        return BrokenText("cannot be handled")


class Faceless(Exception):
    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise SystemExit("has no class")


def _exit(attempt: int, error: BaseException) -> NoReturn:
    raise SystemExit("from the backoff")


def _interrupt(attempt: int, error: BaseException) -> NoReturn:
    raise KeyboardInterrupt("from the backoff")


def _raise(make: Callable[[], BaseException]) -> NoReturn:
    raise make()


RAISED: dict[str, Callable[[], BaseException]] = {
    "retry": lambda: LaterOn(3),
    "snooze": lambda: SleepOn(3),
    "textless": Textless,
    "faceless": Faceless,
    "huge retry": lambda: Retry(5**20),
    "no delay": lambda: Retry("soon"),  # type: ignore[arg-type]
}


@task
def raise_spoilt(kind: str) -> None:
    _raise(RAISED[kind])


@task
async def araise_spoilt(kind: str) -> None:
    _raise(RAISED[kind])


@task(backoff=_exit)
def backoff_exits() -> None:
    raise ValueError("the real error")


@task(backoff=_interrupt)
async def backoff_interrupts() -> None:
    raise ValueError("the real error")


@task(retry_on=[Odd])
def rules_fail() -> None:
    raise ValueError("the real error")


@task(retry_on=[Odd])
async def arules_fail() -> None:
    raise ValueError("the real error")


@task(takes_context=True)
def attempt_of(context: Any) -> list[Any]:
    if not context.job.meta.get("snoozed"):
        raise Snooze(0)
    return [context.attempt, context.job.meta.get("snoozed")]


@task(max_attempts=2, backoff=0, takes_context=True)
def succeed_at_last(context: Any) -> int:
    if not context.job.is_last_attempt:
        raise ValueError("not the last")
    return int(context.attempt)
