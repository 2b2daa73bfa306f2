"""Tasks of the tests of workflows."""

from __future__ import annotations

from typing import Any

from djqueue import task


@task
def download(url: str) -> str:
    return f"content of {url}"


@task
def add(x: int, y: int = 0) -> int:
    return x + y


@task
def total(numbers: list[int], label: str = "") -> int:
    return sum(number for number in numbers if number is not None)


@task
def report(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task
def nothing() -> None:
    pass


@task(max_attempts=1)
def fail(*args: Any) -> None:
    raise ValueError("always")
