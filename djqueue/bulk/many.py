"""Enqueue many jobs of one task: read, encoded and stored in chunks, all of them or none."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from djqueue import compat, propagation
from djqueue.exceptions import DuplicateJob, InvalidJob
from djqueue.jobs.chunks import Chunks, Ids, Items
from djqueue.jobs.compression import compressed
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import BulkResult, InsertedJob, NewJob
from djqueue.outbox.inserts import Inserts
from djqueue.stores import Store
from djqueue.tasks.new_job import encoded_job
from djqueue.tasks.signatures import checker
from djqueue.tasks.task import Task
from djqueue.tasks.unique import Unique, rule_of

_NO_ARGUMENTS = Encoded("[]", "{}")


def enqueue_many(
    store: Store,
    task: Task,
    items: Items,
    batch_size: int,
    on_progress: Callable[[int], None] | None,
    announce: Callable[[NewJob, InsertedJob], Any],
) -> BulkResult:
    """Store one job per item of a valid task. ``announce`` is called for each new job, if anybody listens."""
    if type(batch_size) is not int or not 1 <= batch_size <= 100_000:
        raise ValueError(f"Invalid batch_size {batch_size!r}: use a whole number from 1 to 100000.")
    run = _Run(store, task, announce)
    # A chunk is complete before its statement starts: a generator that queries the same connection must not meet a
    # statement that is still running.
    chunks = Chunks(items, batch_size, store.settings.max_args_bytes, checker(task))
    relaxed = store.is_relaxed(task.queue_name, task.durability)
    with store.inserting(chunks, is_unique=task.unique is not None, relaxed=relaxed) as (inserts, every):
        for chunk in every:
            run.insert(inserts, chunk)
            if on_progress is not None:
                on_progress(run.position)
    return BulkResult(len(run.ids), Ids(run.ids), len(run.duplicate_of), run.duplicate_of)


class _Run:
    def __init__(self, store: Store, task: Task, announce: Callable[[NewJob, InsertedJob], Any]) -> None:
        self._options = store.settings
        self._task = task
        self._announce = announce
        self.position = 0
        """Number of items processed so far."""
        self.ids = array("q")
        self.duplicate_of: dict[int, str] = {}

    def insert(self, inserts: Inserts, chunk: list[Encoded]) -> None:
        meta = propagation.capture()
        if self._task.unique is None:
            self._insert_alike(inserts, chunk, meta)
        else:
            self._insert_unique(inserts, chunk, meta, self._task.unique)
        self.position += len(chunk)

    def _insert_alike(self, inserts: Inserts, chunk: list[Encoded], meta: str) -> None:
        shared = encoded_job(self._task, _NO_ARGUMENTS, meta, self._options)
        if self._task.compress:
            chunk = list(map(compressed, chunk))
        inserted = inserts.insert_many(shared, chunk)
        self.ids.extend(inserted.ids)
        if compat.is_heard(compat.task_enqueued):
            for id, (args, kwargs) in zip(inserted.ids, chunk, strict=True):
                job = InsertedJob(id, inserted.state, inserted.inserted_at)
                self._announce(shared._replace(args=args, kwargs=kwargs), job)

    def _insert_unique(self, inserts: Inserts, chunk: list[Encoded], meta: str, unique: Unique) -> None:
        jobs: list[NewJob] = []
        for item, encoded in enumerate(chunk, self.position):
            try:
                jobs.append(encoded_job(self._task, encoded, meta, self._options))
            except InvalidJob as error:
                raise type(error)(f"Item {item}: {error}") from error
        answers = inserts.insert(jobs, rule=rule_of(unique))
        for item, job in enumerate(answers, self.position):
            if not job.was_duplicate:
                self.ids.append(job.id)
            elif unique.on_conflict == "raise":
                raise duplicate_error(self._task, job, f"Item {item}: ")
            else:
                self.duplicate_of[item] = str(job.id)
        if compat.is_heard(compat.task_enqueued):
            for new, job in zip(jobs, answers, strict=True):
                if not job.was_duplicate:
                    self._announce(new, job)


def duplicate_error(task: Task, job: InsertedJob, where: str = "") -> DuplicateJob:
    return DuplicateJob(f"{where}Job {job.id} ({job.state}) of {task.module_path} holds the unique key.", str(job.id))
