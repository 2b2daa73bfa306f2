"""The crontab on PostgreSQL.

A tick is one transaction of three statements: lock the entry, insert the job as any job is inserted, record the tick and
advance the entry. If the process dies in between, the transaction is rolled back and none of it happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from djqueue.cron.entry import CronDefinition, CronEntry, CronTick, Declaration, Due, NewTick, SeenDeclaration, Ticked
from djqueue.engines.closing import Closing
from djqueue.engines.postgres.execution import Execute
from djqueue.engines.postgres.unique import Insertion, job_columns
from djqueue.jobs.encoding import storable
from djqueue.jobs.records import LIVE_ONLY, InsertedJob, NewJob, UniqueRule


class PostgresCron(Closing):
    """The crontab. ``transact`` decides whether verbs run in the caller's transaction or on a connection of their own."""

    def __init__(
        self,
        transact: Callable[[Callable[[Execute], Any]], Any],
        *,
        wake: Callable[[Collection[str]], None],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._transact = transact
        self._wake = wake
        self._close = close

    def entries(self, names: Collection[str] | None = None) -> list[CronEntry]:
        rows = self._run("cron_entries", {"names": None if names is None else list(names)})
        return [_entry(row) for row in rows]

    def due(self, *, now: datetime | None = None) -> Due:
        rows = self._run("cron_due", {"now": now})
        return Due(rows[0][0], [_entry(row[2:]) for row in rows if row[2] is not None], rows[0][1])

    def plan(self, entry: CronEntry, next_at: datetime | None, *, now: datetime | None = None) -> None:
        params = {"id": entry.id, "revision": entry.revision, "expected": entry.next_at, "next": next_at, "now": now}
        self._run("cron_plan", params)

    def tick(
        self, tick: NewTick, job: NewJob | None, *, rule: UniqueRule = LIVE_ONLY, now: datetime | None = None
    ) -> Ticked:
        return self._transact_and_wake(lambda execute: self._tick(execute, tick, job, rule, now))

    def _tick(
        self, execute: Execute, tick: NewTick, job: NewJob | None, rule: UniqueRule, now: datetime | None
    ) -> tuple[Ticked, Collection[str]]:
        entry = tick.entry
        rows = execute(
            "cron_lock",
            {
                "id": entry.id,
                "revision": entry.revision,
                "expected": entry.next_at,
                "last": entry.last_nominal_at,
                "nominal": tick.nominal_at,
            },
        )
        if not rows:
            return Ticked("stale"), ()
        [(overlapping, is_done)] = rows
        reason = tick.skip or ("done before" if is_done else "")
        if not reason and overlapping and entry.definition.overlap == "queue":
            return Ticked("held"), ()
        if not reason and overlapping and entry.definition.overlap == "skip":
            reason = "overlap"
        if not reason and overlapping and entry.definition.overlap == "cancel_running":
            _cancel(execute, overlapping, entry.name, now)
        ticked, queues = Ticked("skipped", reason), set[str]()
        if not reason and job is not None:
            ticked, queues = _insert(execute, job, rule, now)
        execute(
            "cron_tick",
            {
                "id": entry.id,
                "nominal": tick.nominal_at,
                "next": tick.next_at,
                "outcome": ticked.outcome,
                "reason": storable(ticked.reason, 200),
                "job": ticked.job_id,
                "missed_from": tick.missed_from,
                "is_done": is_done,
                "is_endless": entry.is_reboot,
                "now": now,
            },
        )
        return ticked, queues

    def run(
        self, entry: CronEntry, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, by: str = "", now: datetime | None = None
    ) -> Ticked:
        def work(execute: Execute) -> tuple[Ticked, Collection[str]]:
            ticked, queues = _insert(execute, job, rule, now)
            execute("cron_note", {"id": entry.id, **ticked._asdict(), "by": _by(by), "now": now})
            return ticked, queues

        return self._transact_and_wake(work)

    def _transact_and_wake(self, work: Callable[[Execute], tuple[Ticked, Collection[str]]]) -> Ticked:
        ticked, queues = self._transact(work)
        if queues:
            self._wake(queues)
        return ticked  # type: ignore[no-any-return]

    def add(
        self,
        name: str,
        definition: CronDefinition,
        *,
        code: CronDefinition | None = None,
        by: str = "",
        now: datetime | None = None,
    ) -> bool:
        return bool(self._run("cron_add", {"name": name, **_columns(definition, code), "by": _by(by), "now": now}))

    def change(
        self,
        entry: CronEntry,
        definition: CronDefinition,
        *,
        code: CronDefinition | None,
        is_paused: bool,
        pause_reason: str = "",
        is_disabled: bool = False,
        by: str = "",
        now: datetime | None = None,
    ) -> bool:
        params = {
            "id": entry.id,
            "revision": entry.revision,
            **_columns(definition, code),
            "is_paused": is_paused,
            "pause_reason": storable(pause_reason, 2000),
            "is_disabled": is_disabled,
            "by": _by(by),
            "now": now,
        }
        return bool(self._run("cron_change", params))

    def remove(self, entry: CronEntry) -> bool:
        def work(execute: Execute) -> bool:
            # A tick that is just being written is waited for, or its row would keep the entry from going.
            execute("cron_hold", {"id": entry.id})
            return bool(execute("cron_remove", {"id": entry.id}))

        removed: bool = self._transact(work)
        return removed

    def declare(
        self, declaration: Declaration, *, kept: timedelta, now: datetime | None = None
    ) -> list[SeenDeclaration]:
        params = {
            "id": declaration.id,
            "name": storable(declaration.name, 255),
            "entries": _json(dict(declaration.entries)),
            "kept": kept,
            "now": now,
        }
        self._run("cron_forget", params)
        return [
            SeenDeclaration(id, name, json.loads(entries), started_at, timedelta(seconds=silent))
            for id, name, entries, started_at, silent in self._run("cron_declare", params)
        ]

    def ticks(self, entry: CronEntry, limit: int = 100) -> list[CronTick]:
        names = [each.name for each in fields(CronTick)]
        rows = self._run("cron_ticks", {"id": entry.id, "limit": limit})
        return [CronTick(**dict(zip(names, row, strict=True))) for row in rows]

    def prune(self, age: timedelta, limit: int = 5000, *, now: datetime | None = None) -> int:
        [(count,)] = self._run("cron_prune", {"age": age.total_seconds(), "limit": limit, "now": now})
        return int(count)

    def close(self) -> None:
        self._close()

    def _run(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._transact(lambda execute: execute(name, params))
        return rows


def _cancel(execute: Execute, ids: list[int], name: str, now: datetime | None) -> None:
    """Cancel the previous jobs of an entry, with the tick that takes their place: they end, or are asked to."""
    params = {
        "ids": ids,
        "only": None,
        "by": storable(f"cron: {name}", 200),
        "reason": "Its next time has come.",
        "is_settling": False,
        "now": now,
    }
    if running := [f"cancel:{id}" for id, state, *_ in execute("cancel", params) if state == "executing"]:
        execute("notify", {"queues": running})


def _insert(execute: Execute, job: NewJob, rule: UniqueRule, now: datetime | None) -> tuple[Ticked, set[str]]:
    """Insert a job by the statements that insert any job; return also the queues to wake after the commit."""
    if job.unique_key is not None and rule != LIVE_ONLY:
        insertion = Insertion(execute, [job], rule, now, is_in_transaction=True)
        [inserted] = insertion.run()
        queues = insertion.ready_in
    else:
        [row] = execute("insert", {**job_columns([job]), "now": now, "relaxed": False})
        inserted = InsertedJob._make(row)
        queues = set() if inserted.was_duplicate else {job.queue}
    ticked = Ticked("skipped", "duplicate") if inserted.was_duplicate else Ticked("enqueued", job_id=inserted.id)
    return ticked, queues


def _columns(definition: CronDefinition, code: CronDefinition | None) -> dict[str, Any]:
    columns = definition.as_json()
    return {
        **columns,
        "start_at": definition.start_at,
        "end_at": definition.end_at,
        "args": _json(columns["args"]),
        "kwargs": _json(columns["kwargs"]),
        "code": None if code is None else _json(code.as_json()),
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _by(who: str) -> str:
    return storable(who, 255)


def _entry(row: Sequence[Any]) -> CronEntry:
    values = dict(zip(_COLUMNS, row, strict=True))
    definition = {name: values.pop(name) for name in _DEFINITION}
    definition["args"] = _list(json.loads(definition["args"]))
    definition["kwargs"] = json.loads(definition["kwargs"])
    code = None if values["code"] is None else json.loads(values["code"])
    values["code"] = None
    if isinstance(code, dict):
        # Another version of djqueue may have stored values that this one does not know.
        with suppress(TypeError, ValueError):
            values["code"] = CronDefinition.from_json(code)
    return CronEntry(definition=CronDefinition(**definition), **values)


def _list(value: Any) -> Any:
    # A value that was edited by hand is kept as it is: it is rejected when its job is made.
    return tuple(value) if isinstance(value, list) else value


_DEFINITION = [each.name for each in fields(CronDefinition)]
_COLUMNS = ["id", "name", *_DEFINITION, *[each.name for each in fields(CronEntry)][3:]]
