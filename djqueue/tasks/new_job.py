"""Make the jobs of a task: check and encode their arguments, and compute their unique keys. Nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from djqueue import propagation
from djqueue.conf import Options
from djqueue.jobs.compression import compressed
from djqueue.jobs.encoding import Encoded, encode_arguments
from djqueue.jobs.moments import as_aware
from djqueue.jobs.records import NewJob
from djqueue.tasks.signatures import check_arguments
from djqueue.tasks.task import Task
from djqueue.tasks.unique import key_of

_decode = json.JSONDecoder().decode


def new_job(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options) -> NewJob:
    """Return a job of a valid task with the caller's context; raise ``InvalidJob`` if it cannot be enqueued."""
    encoded = encode_arguments(args, kwargs, options.max_args_bytes)
    check_arguments(task, args, kwargs)
    return encoded_job(task, encoded, propagation.capture(), options)


def encoded_job(task: Task, encoded: Encoded, meta: str, options: Options) -> NewJob:
    """Return a job whose arguments are already checked and encoded."""
    key, delay = None, task.run_in
    if (rule := task.unique) is not None:
        args = _decode(encoded.args)
        kwargs = {} if encoded.kwargs == "{}" else _decode(encoded.kwargs)
        key = key_of(rule, task.module_path, task.func, args, kwargs, takes_context=task.takes_context)
        delay = rule.debounce or delay  # type: ignore[assignment]  # Unique has converted it to a timedelta
    if task.compress:
        encoded = compressed(encoded)
    return NewJob(
        task=task.module_path,
        args=encoded.args,
        kwargs=encoded.kwargs,
        queue=task.queue_name,
        priority=int(task.priority),
        max_attempts=task.max_attempts or options.max_attempts,
        scheduled_at=as_aware(task.run_after),
        delay=delay,
        max_age=task.max_age,
        meta=meta,
        unique_key=key,
    )
