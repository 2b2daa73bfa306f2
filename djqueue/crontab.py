"""Read and change the crontab: list, add, change, pause, resume, run now, remove.

``manage.py cron`` and the admin call these functions. Writes join the caller's transaction, if there is one. An entry can
run only registered tasks, because users who may write entries decide which code runs. An entry that could never run is
refused at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from itertools import islice
from typing import Any

from django.conf import settings

from djqueue import compat, stores
from djqueue.cron.entry import CronDefinition, CronEntry, CronTick, Ticked
from djqueue.cron.planning import times
from djqueue.cron.schedule import InvalidSchedule, Schedule
from djqueue.engines.protocol import CronStore
from djqueue.exceptions import ForeignBackend, InvalidCron, InvalidJob, UnknownCron, UnknownTask
from djqueue.jobs.encoding import is_storable
from djqueue.jobs.records import NewJob, UniqueRule
from djqueue.tasks import registry
from djqueue.tasks.new_job import new_job as make_job
from djqueue.tasks.task import Task
from djqueue.tasks.unique import rule_of

FIELDS = tuple(each.name for each in fields(CronDefinition))


def entries(*, backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> list[CronEntry]:
    """Return all entries, by name."""
    return _cron(backend).entries()


def get(name: str, *, backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> CronEntry:
    """Return the entry; raise ``UnknownCron`` if no entry has this name."""
    found = _cron(backend).entries([name]) if is_storable(name) else []
    if not found:
        raise UnknownCron(f"The crontab has no entry {name!r:.250}.")
    return found[0]


def history(name: str, limit: int = 100, *, backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> list[CronTick]:
    """Return the history of an entry, newest first."""
    return _cron(backend).ticks(get(name, backend=backend), limit)


def next_times(entry: CronEntry, count: int = 5) -> list[datetime]:
    """Return the next times of an entry as if it were active, fewer if it ends before."""
    try:
        schedule = Schedule(entry.definition.expression, entry.definition.timezone)
    except InvalidSchedule:
        return []
    return list(islice(times(entry, schedule), count))


def add(
    name: str,
    task: str | Task,
    expression: str,
    *,
    by: str = "",
    backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS,
    **values: Any,
) -> CronEntry:
    """Add an entry; ``values`` are fields of ``CronDefinition``. Raise ``InvalidCron`` if it cannot work."""
    values.setdefault("timezone", settings.TIME_ZONE or "UTC")
    path = task.module_path if isinstance(task, Task) else task
    definition = _definition(None, {**values, "task": path, "expression": expression})
    check(name, definition, backend=backend)
    if not _cron(backend).add(name, definition, by=by):
        raise InvalidCron(f"The crontab already has an entry {name!r}.")
    return get(name, backend=backend)


def change(name: str, *, by: str = "", backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS, **values: Any) -> CronEntry:
    """Change fields of an entry. Changes to an entry from the code are kept and shown as drift."""
    entry = get(name, backend=backend)
    definition = _definition(entry.definition, values)
    check(name, definition, backend=backend)
    _write(entry, definition, entry.paused_at is not None, entry.pause_reason, by, backend)
    return get(name, backend=backend)


def pause(name: str, reason: str = "", *, by: str = "", backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> CronEntry:
    """Pause an entry: none of its times runs until it is resumed."""
    entry = get(name, backend=backend)
    _write(entry, entry.definition, True, reason, by, backend)
    return get(name, backend=backend)


def resume(name: str, *, by: str = "", backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> CronEntry:
    """Resume an entry with its next time from now. Times that passed during the pause are not made up for."""
    entry = get(name, backend=backend)
    _write(entry, entry.definition, False, "", by, backend)
    return get(name, backend=backend)


def run_now(name: str, *, by: str = "", backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> Ticked:
    """Enqueue its job at once, beside its schedule, even if it is paused; raise ``InvalidCron`` if it cannot run."""
    entry = get(name, backend=backend)
    try:
        job = new_job(entry, {"entry": name, "by": by})
    except (UnknownTask, InvalidJob, compat.InvalidTask) as error:
        raise InvalidCron(f"Cannot run {name!r}: {error}") from error
    return _cron(backend).run(entry, job, rule=rule_for(entry), by=by)


def remove(name: str, *, backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> None:
    """Remove an entry with its history. An entry that is still in the code would be added again: pause it instead."""
    entry = get(name, backend=backend)
    if entry.code is not None and entry.disabled_at is None:
        raise InvalidCron(
            f"Cannot remove {name!r}: it is defined in the code and would be added again. Pause it, or remove it from the code."
        )
    _cron(backend).remove(entry)


def reset(name: str, *, by: str = "", backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> CronEntry:
    """Reset an entry to its definition in the code."""
    entry = get(name, backend=backend)
    if entry.code is None:
        raise InvalidCron(f"Cannot reset {name!r}: it was created in the database and is not defined in the code.")
    _write(entry, entry.code, entry.paused_at is not None, entry.pause_reason, by, backend)
    return get(name, backend=backend)


def check(name: str, definition: CronDefinition, *, backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> None:
    """Raise ``InvalidCron`` if an entry with this name and definition could not run."""
    try:
        task = registry.find(definition.task)
    except UnknownTask as error:
        raise InvalidCron(str(error)) from None
    if problem := task.cron_problem(name, definition):
        raise InvalidCron(problem)
    if not is_at_home(task, backend):
        raise InvalidCron(f"The jobs of {definition.task} are not stored in the backend {backend!r}.")


def is_at_home(task: Task, backend: str = compat.DEFAULT_TASK_BACKEND_ALIAS) -> bool:
    """Return whether a task's jobs are in the same store as those of this backend."""
    theirs = stores.find(task.backend)
    return theirs is not None and theirs.has_jobs_of(stores.store(backend))


def new_job(entry: CronEntry, cron: Mapping[str, Any]) -> NewJob:
    """Return the job of an entry as its task would enqueue it. ``cron`` is stored in its meta.

    Raise ``UnknownTask``, ``InvalidJob`` or ``InvalidTask`` if the entry cannot run.
    """
    definition = entry.definition
    task = registry.find(definition.task)
    if problem := task.cron_problem(entry.name, definition):
        raise InvalidJob(problem)
    task = task.with_overrides(definition)
    try:
        store = stores.store(task.backend)
    except ForeignBackend as error:
        raise InvalidJob(f"{definition.task} cannot run as a cron entry. {error}") from None
    task.get_backend().validate_task(task)
    job = make_job(task, definition.args, definition.kwargs, store.settings)
    return job._replace(meta=json.dumps({**json.loads(job.meta), "cron": cron}))


def rule_for(entry: CronEntry) -> UniqueRule:
    """Return the rule of an entry's task for a job whose unique key is held."""
    return rule_of(registry.find(entry.definition.task).unique)


def _definition(base: CronDefinition | None, values: Mapping[str, Any]) -> CronDefinition:
    if unknown := sorted(set(values) - set(FIELDS)):
        raise InvalidCron(f"Invalid fields of a cron entry: {', '.join(unknown)}. Use: {', '.join(FIELDS)}.")
    return CronDefinition(**values) if base is None else replace(base, **values)


def _write(
    entry: CronEntry, definition: CronDefinition, is_paused: bool, pause_reason: str, by: str, backend: str
) -> None:
    is_written = _cron(backend).change(
        entry,
        definition,
        code=entry.code,
        is_paused=is_paused,
        pause_reason=pause_reason,
        is_disabled=entry.disabled_at is not None,
        by=by,
    )
    if not is_written:
        raise InvalidCron(f"The entry {entry.name!r} was changed by another user or process. Read it again and retry.")


def _cron(alias: str) -> CronStore:
    return stores.store(alias).engine.cron
