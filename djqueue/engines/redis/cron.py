"""The crontab on Redis.

A tick is one script: it checks that the entry has not changed since it was read, inserts the job as any job is inserted,
records the tick and advances the entry. The definition of an entry, which the scripts need not read, is one JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from djqueue.cron.entry import CronDefinition, CronEntry, CronTick, Declaration, Due, NewTick, SeenDeclaration, Ticked
from djqueue.cron.schedule import REBOOT
from djqueue.engines.closing import Closing
from djqueue.engines.control import BY_LENGTH, REASON_LENGTH
from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import MICROSECOND, clock, columns, micros, moment, unpack
from djqueue.engines.redis.unique import rule_columns
from djqueue.jobs.encoding import storable
from djqueue.jobs.records import LIVE_ONLY, NewJob, UniqueRule

_PAGE = 200
"""How many entries one script reads."""
_PRUNE_STEP = 1000
_MAX_REASON = 200


class RedisCron(Closing):
    """The crontab. Each verb takes effect at once: the server cannot take part in the caller's transaction."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def close(self) -> None:
        self._client.close()

    def entries(self, names: Collection[str] | None = None) -> list[CronEntry]:
        known = self._client.run("cron_names") if names is None else [name.encode() for name in names]
        wanted = sorted({*known})
        found: list[CronEntry] = []
        for first in range(0, len(wanted), _PAGE):
            found += _entries(self._client.run("cron_entries", *wanted[first : first + _PAGE]))
        return found

    def due(self, *, now: datetime | None = None) -> Due:
        at, coming, *rows = self._client.run("cron_due", clock(now), 0, _PAGE)
        page = rows
        while len(page) == 2 * _PAGE:
            _, _, *page = self._client.run("cron_due", at, len(rows) // 2, _PAGE)
            rows += page
        # Entries without a next time come first, like those that are long overdue.
        entries = sorted(
            _entries(rows), key=lambda entry: (entry.next_at or datetime.min.replace(tzinfo=UTC), entry.id)
        )
        return Due(moment(int(at)), entries, None if coming is None else (int(coming) - int(at)) / 1e6)

    def plan(self, entry: CronEntry, next_at: datetime | None, *, now: datetime | None = None) -> None:
        self._client.run("cron_plan", clock(now), entry.id, entry.revision, _text(entry.next_at), _text(next_at))

    def tick(
        self, tick: NewTick, job: NewJob | None, *, rule: UniqueRule = LIVE_ONLY, now: datetime | None = None
    ) -> Ticked:
        entry, definition = tick.entry, tick.entry.definition
        answer = self._client.run(
            "cron_tick",
            clock(now),
            entry.id,
            entry.revision,
            _text(entry.next_at),
            _text(entry.last_nominal_at),
            micros(tick.nominal_at),
            _text(tick.next_at),
            storable(tick.skip, _MAX_REASON),
            _text(tick.missed_from),
            definition.overlap,
            "" if definition.max_runs is None else definition.max_runs,
            storable(f"cron: {entry.name}", BY_LENGTH),
            "Its next time has come.",
            self._job(job),
            self._client.pack(rule_columns(rule)),
        )
        return _ticked(*answer)

    def run(
        self, entry: CronEntry, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, by: str = "", now: datetime | None = None
    ) -> Ticked:
        how = self._client.pack(rule_columns(rule))
        return _ticked(*self._client.run("cron_run", clock(now), entry.id, _by(by), self._job(job), how))

    def add(
        self,
        name: str,
        definition: CronDefinition,
        *,
        code: CronDefinition | None = None,
        by: str = "",
        now: datetime | None = None,
    ) -> bool:
        return self._client.run("cron_add", clock(now), name, *_texts(definition, code), _by(by)) is not None

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
        answer = self._client.run(
            "cron_change",
            clock(now),
            entry.id,
            entry.revision,
            *_texts(definition, code),
            int(is_paused),
            storable(pause_reason, REASON_LENGTH),
            int(is_disabled),
            _by(by),
        )
        return answer is not None

    def remove(self, entry: CronEntry) -> bool:
        return bool(self._client.run("cron_remove", entry.id))

    def declare(
        self, declaration: Declaration, *, kept: timedelta, now: datetime | None = None
    ) -> list[SeenDeclaration]:
        at, *flat = self._client.run(
            "cron_declare",
            clock(now),
            str(declaration.id),
            storable(declaration.name, BY_LENGTH),
            _json(dict(declaration.entries)),
            kept // MICROSECOND,
        )
        values = iter(flat)
        return [
            SeenDeclaration(
                UUID(id.decode()),
                name.decode(errors="replace"),
                json.loads(entries),
                moment(int(started_at)),
                moment(int(at)) - moment(int(declared_at)),
            )
            for id, name, entries, started_at, declared_at in zip(*[values] * 5, strict=True)
        ]

    def ticks(self, entry: CronEntry, limit: int = 100) -> list[CronTick]:
        return [_tick(line) for line in self._client.run("cron_ticks", entry.id, limit)] if limit > 0 else []

    def prune(self, age: timedelta, limit: int = 5000, *, now: datetime | None = None) -> int:
        seen = count = 0
        while wanted := min(_PRUNE_STEP, limit - seen):
            looked_at, gone = self._client.run("cron_prune", clock(now), age // MICROSECOND, wanted)
            seen, count = seen + looked_at, count + gone
            if looked_at < wanted:
                break
        return count

    def _job(self, job: NewJob | None) -> bytes:
        return b"" if job is None else self._client.pack(columns([job], self._client.pack))


def _text(at: datetime | None) -> str:
    return "" if at is None else str(micros(at))


def _texts(definition: CronDefinition, code: CronDefinition | None) -> tuple[str, str, str, str]:
    """Return the scripts' arguments: the definition, the code's one, the part that determines the plan, and '1' for ``@reboot``."""
    rule = definition.as_json()
    parts = [rule[name] for name in ("expression", "timezone", "start_at", "end_at", "max_runs")]
    is_reboot = definition.expression.strip().lower() == REBOOT
    return _json(rule), "" if code is None else _json(code.as_json()), _json(parts), "1" if is_reboot else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _by(who: str) -> str:
    return storable(who, BY_LENGTH)


def _ticked(outcome: bytes, reason: bytes, job: bytes) -> Ticked:
    return Ticked(outcome.decode(), reason.decode(), int(job) if job else None)  # type: ignore[arg-type]


def _entries(rows: Sequence[Any]) -> list[CronEntry]:
    pairs = iter(rows)
    return [_entry(int(id), flat) for id, flat in zip(pairs, pairs, strict=True)]


def _entry(id: int, flat: Sequence[bytes]) -> CronEntry:
    pairs = iter(flat)
    values: dict[str, Any] = {
        name.decode(): text.decode(errors="replace") for name, text in zip(pairs, pairs, strict=True)
    }
    for name in _TIMES:
        values[name] = moment(int(values[name])) if values[name] else None
    code = None
    # Another version of djqueue may have stored values that this one does not know.
    with suppress(TypeError, ValueError):
        code = CronDefinition.from_json(json.loads(values["code"])) if values["code"] else None
    return CronEntry(
        id=id,
        name=values["name"],
        definition=_definition(values["definition"]),
        code=code,
        revision=int(values["revision"]),
        runs=int(values["runs"]),
        **{name: values[name] for name in (*_TIMES, *_WORDS)},
    )


def _definition(text: str) -> CronDefinition:
    try:
        return CronDefinition.from_json(json.loads(text))
    except (TypeError, ValueError, AttributeError):
        # The text was edited by hand. The entry can be neither planned nor run, and it is shown as it is.
        return CronDefinition(task="", expression=text)


def _tick(line: bytes) -> CronTick:
    _, nominal, at, outcome, reason, job, missed_from, by, *_ = unpack(line)
    return CronTick(
        nominal_at=moment(int(nominal)) if nominal else None,
        at=moment(int(at)),
        outcome=outcome,
        reason=reason,
        job_id=int(job) if job else None,
        missed_from=moment(int(missed_from)) if missed_from else None,
        by=by,
    )


_TIMES = (
    "created_at",
    "changed_at",
    "paused_at",
    "disabled_at",
    "finished_at",
    "planned_from",
    "next_at",
    "last_nominal_at",
)
_WORDS = ("created_by", "changed_by", "paused_by", "pause_reason", "last_outcome")
