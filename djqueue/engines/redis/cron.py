"""The crontab on Redis.

A tick is one script: it looks whether the entry is still as it was read, inserts the job as every job is inserted, writes the
tick and moves the entry on. What the scripts need not understand of an entry, its definition, is one text of JSON to them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from djqueue.cron.entry import CronDefinition, CronEntry, CronTick, Declaration, Due, NewTick, SeenDeclaration, Ticked
from djqueue.cron.schedule import REBOOT
from djqueue.engines.control import BY_LENGTH, REASON_LENGTH
from djqueue.engines.redis.client import Client
from djqueue.engines.redis.codec import MICROSECOND, clock, columns, micros, moment, unpack
from djqueue.engines.redis.unique import rule_columns
from djqueue.jobs.encoding import storable
from djqueue.jobs.records import LIVE_ONLY, NewJob, UniqueRule

_PAGE = 200
"""Entries of one read."""
_PRUNE_STEP = 1000
_MAX_REASON = 200


class RedisCron:
    """The verbs of the crontab. Each takes effect at once: a transaction of the caller's is none of this server's."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._client.close()

    def entries(self, names: Collection[str] | None = None) -> list[CronEntry]:
        """Return the entries of these names, or all, by name."""
        known = self._client.run("cron_names") if names is None else [name.encode() for name in names]
        wanted = sorted({*known})
        found: list[CronEntry] = []
        for first in range(0, len(wanted), _PAGE):
            found += _entries(self._client.run("cron_entries", *wanted[first : first + _PAGE]))
        return found

    def due(self, *, now: datetime | None = None) -> Due:
        """Return the entries that are due or have no next time yet."""
        at, coming, *rows = self._client.run("cron_due", clock(now), 0, _PAGE)
        page = rows
        while len(page) == 2 * _PAGE:
            _, _, *page = self._client.run("cron_due", at, len(rows) // 2, _PAGE)
            rows += page
        # Those without a time first, like those whose time has long passed.
        entries = sorted(
            _entries(rows), key=lambda entry: (entry.next_at or datetime.min.replace(tzinfo=UTC), entry.id)
        )
        return Due(moment(int(at)), entries, None if coming is None else (int(coming) - int(at)) / 1e6)

    def plan(self, entry: CronEntry, next_at: datetime | None, *, now: datetime | None = None) -> None:
        """Store when an entry is due; None: never again."""
        self._client.run("cron_plan", clock(now), entry.id, entry.revision, _text(entry.next_at), _text(next_at))

    def tick(
        self, tick: NewTick, job: NewJob | None, *, rule: UniqueRule = LIVE_ONLY, now: datetime | None = None
    ) -> Ticked:
        """Act upon one nominal time, once: insert its job, write the tick and move the entry on."""
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
        """Insert a job of the entry at once, whatever its schedule says, and write down who asked."""
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
        """Add an entry; False when the name is taken."""
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
        """Change an entry; False when somebody else changed it since it was read."""
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
        """Remove an entry with its history; False when it is gone already."""
        return bool(self._client.run("cron_remove", entry.id))

    def declare(
        self, declaration: Declaration, *, kept: timedelta, now: datetime | None = None
    ) -> list[SeenDeclaration]:
        """Write down which entries a scheduler's code has; return all declarations that are younger than ``kept``."""
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
        """Return the history of an entry, newest first."""
        return [_tick(line) for line in self._client.run("cron_ticks", entry.id, limit)] if limit > 0 else []

    def prune(self, age: timedelta, limit: int = 5000, *, now: datetime | None = None) -> int:
        """Delete ticks that are older; return how many went."""
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
    """Return a definition, what the code says, what of it plans the entry, and whether nothing does, as the scripts take them."""
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
    # Another version may have written words that this one does not understand.
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
        # Edited in by hand. It can be neither planned nor run, and it is shown as what it is.
        return CronDefinition(task="", expression=text)


def _tick(line: bytes) -> CronTick:
    _, nominal, at, outcome, reason, job, missed_from, by = unpack(line)
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
