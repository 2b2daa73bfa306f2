"""Tasks of the tests of workflows."""

from __future__ import annotations

import os
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction

from djqueue import TaskContext, compat, group, task
from djqueue.models import Job
from tests.ledger.models import Entry

CAN_COMMIT_TOGETHER: bool = getattr(compat.task_backends["default"], "supports_transactional", False)


@task
def download(url: str) -> str:
    return f"content of {url}"


@task
def add(x: int, y: int = 0) -> int:
    return x + y


@task
def total(numbers: list[int | None], label: str = "") -> int:
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


@task
async def adouble(x: int) -> int:
    return 2 * x


@task(takes_context=True)
def look(context: TaskContext, *args: Any) -> dict[str, Any]:
    assert context.workflow is not None
    return {
        "args": list(args),
        "results": dict(context.results),
        "children": [[child.name, child.state] for child in context.children],
        "workflow": context.workflow.name,
    }


@task(takes_context=True)
async def alook(context: TaskContext, *args: Any) -> dict[str, Any]:
    workflow = await context.aworkflow()
    assert workflow is not None
    return {"args": list(args), "results": await context.aresults(), "workflow": workflow.name}


@task(takes_context=True)
def grow(context: TaskContext, count: int) -> str:
    assert context.workflow is not None
    added = context.workflow.add(group(add.s(number) for number in range(count)) | total.s(label="added"))
    return str(added.last_ids[0])


@task(takes_context=True, max_attempts=3, backoff=0)
def in_steps(context: TaskContext) -> list[Any]:
    first = context.step("first", write_and_return, "first", ("a", 1))
    second = context.step("second", write_and_return, "second", "b")
    if context.attempt == 1:
        raise ValueError("after two steps")
    return [first, second, context.step("third", write_and_return, "third", None)]


@task(takes_context=True, max_attempts=3, backoff=0)
async def in_async_steps(context: TaskContext) -> list[Any]:
    first = await context.astep("first", awrite_and_return, "first", "a")
    second = await context.astep("second", write_and_return, "second", "b")
    if context.attempt == 1:
        raise ValueError("after two steps")
    return [first, second]


@task(takes_context=True, max_attempts=3, backoff=0)
def in_rolled_back_step(context: TaskContext) -> str:
    with transaction.atomic():
        value = context.step("only", write_and_return, f"attempt {context.attempt}", f"attempt {context.attempt}")
        if context.attempt == 1:
            raise ValueError("the step is rolled back with its transaction")
    return str(value)


@task(takes_context=True, transactional=CAN_COMMIT_TOGETHER, max_attempts=3, backoff=0)
def in_own_transaction(context: TaskContext, number: int) -> int:
    value = context.step("only", write_and_return, f"transaction {context.attempt}", number)
    if context.attempt == 1:
        raise ValueError("the step is rolled back with the task's writes")
    return int(value)


@task(takes_context=True, max_attempts=1)
def in_stale_step(context: TaskContext) -> None:
    """Another worker gets the job while its step runs."""
    Job.objects.filter(id=context.job.id).update(claim=999)
    context.step("only", write_and_return, "ran", None)
    write("went on")


def write(label: str) -> None:
    Entry.objects.create(label=label, pid=os.getpid())


def write_and_return(label: str, value: Any) -> Any:
    write(label)
    return value


async def awrite_and_return(label: str, value: Any) -> Any:
    await sync_to_async(write)(label)
    return value
