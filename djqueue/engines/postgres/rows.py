"""Convert rows of the tables to jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from djqueue.jobs.lists import WorkerStatus, served_queues
from djqueue.jobs.records import NOBODY, Job
from djqueue.jobs.states import JobState


def job_of(row: Sequence[Any]) -> Job:
    """Return the job in a row with the columns of ``_job_columns.sql``."""
    values = dict(zip(_JOB_COLUMNS, row, strict=True))
    for name in ("args", "kwargs", "errors", "meta", "result", "cancel_request"):
        if values[name] is not None:
            values[name] = json.loads(values[name])
    if values["attempted_by"] == NOBODY:
        values["attempted_by"] = values["attempted_at"] = None
    return Job(**{**values, "state": JobState(values["state"])})


def worker_of(row: Sequence[Any]) -> WorkerStatus:
    """Return the worker in a row of ``workers.sql``."""
    worker = WorkerStatus._make(row)
    return worker._replace(queues=served_queues(json.loads(str(worker.queues))))


_JOB_COLUMNS = [each.name for each in fields(Job)]
