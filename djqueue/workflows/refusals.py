"""What cannot be a workflow or batch, or part of one."""

from __future__ import annotations

from typing import Any

from djqueue import compat
from djqueue.conf import Options
from djqueue.exceptions import InvalidWorkflow
from djqueue.tasks.task import Task

MAX_FLOW_NAME = 255


def is_text(value: object, length: int) -> bool:
    """Return whether a value can be a name."""
    return isinstance(value, str) and 0 < len(value) <= length and value.isprintable()


def check_task(task: compat.Task[..., Any], options: Options, alias: str, where: str) -> None:
    """Raise ``InvalidWorkflow`` for a task of another backend, of a queue that delivers at most once, or with a unique rule."""
    name = task.func.__name__
    if task.backend != alias:
        raise InvalidWorkflow(
            f"{where} runs on the backend {task.backend!r}, and the others on {alias!r}. The jobs of a workflow need one store:"
            f" use {name}.using(backend={alias!r})."
        )
    rules = options.queues.get(task.queue_name)
    if rules is not None and rules.delivery == "at_most_once":
        raise InvalidWorkflow(
            f"{where} is on queue {task.queue_name!r}, which delivers at most once: its jobs leave the store when they start, so"
            " nothing can wait for them. Use another queue."
        )
    if isinstance(task, Task) and task.unique is not None:
        raise InvalidWorkflow(
            f"{where} is unique. A job of a workflow cannot be left out as a duplicate, because others wait for it. Use"
            f" {name}.using(unique=False), or Workflow(…, unique=True) for the whole."
        )
