"""``manage.py cron``: show and change the crontab."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.utils import timezone

from djqueue import crontab
from djqueue.cron.entry import MISFIRES, OVERLAPS, CronEntry
from djqueue.exceptions import DjqueueError
from djqueue.management.arguments import add_backend, user_name, whole_seconds
from djqueue.management.backends import database_problem, store_of
from djqueue.management.reporting import ReportingCommand
from djqueue.management.terminal import columns, notice, plain


class Command(ReportingCommand):
    help = "Show and change the crontab."
    requires_system_checks = ["djqueue"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        one = verbs.add_parser("list", help="List all entries.")
        one.add_argument("--json", action="store_true", help="As JSON.")
        for verb, text in (
            ("show", "Show an entry and its history."),
            ("resume", "Resume an entry; times that passed during the pause are skipped."),
            ("run-now", "Enqueue its job now, in addition to the schedule."),
            ("remove", "Remove an entry that was added to the database, with its history."),
            ("reset", "Reset an entry to its definition in the code."),
        ):
            verbs.add_parser(verb, help=text).add_argument("name")
        pause = verbs.add_parser("pause", help="Enqueue nothing for an entry until it is resumed.")
        pause.add_argument("name")
        pause.add_argument("--reason", default="", help="Shown in the admin and by cron show.")
        following = verbs.add_parser("next", help="Show the next times of an entry.")
        following.add_argument("name")
        following.add_argument("--count", type=int, default=5, metavar="N")
        _add_definition(verbs.add_parser("add", help="Add an entry to the database."))
        add_backend(parser, verbs)

    def handle(self, **options: Any) -> None:
        self.is_output_all = options["verb"] in ("list", "show", "next")
        store = store_of(options["backend"])
        verb: Callable[[dict[str, Any]], None] = getattr(self, f"_{options['verb'].replace('-', '_')}")
        try:
            verb(options)
        except DjqueueError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(database_problem(error, store.database_of_tables)) from error

    def _list(self, options: dict[str, Any]) -> None:
        entries = crontab.entries(backend=options["backend"])
        if options["json"]:
            self.stdout.write(json.dumps([_as_json(entry) for entry in entries], indent=2))
            return
        rows: list[tuple[str, ...]] = [("NAME", "SCHEDULE", "TASK", "STATE", "NEXT", "LAST", "RUNS")]
        rows += [_row(entry) for entry in entries]
        for line in columns(rows) if entries else ["The crontab is empty."]:
            self.stdout.write(line)

    def _show(self, options: dict[str, Any]) -> None:
        entry = crontab.get(options["name"], backend=options["backend"])
        for label, value in _facts(entry):
            self.stdout.write(f"{label + ':':<24} {value}")
        for tick in crontab.history(entry.name, 20, backend=options["backend"]):
            when = "by hand" if tick.nominal_at is None else entry.definition.local(tick.nominal_at)
            words = [f"  {when}  {tick.outcome}", tick.reason, f"job {tick.job_id}" if tick.job_id else "", tick.by]
            if tick.missed_from is not None:
                words.append(f"missed from {entry.definition.local(tick.missed_from)}")
            self.stdout.write("  ".join(plain(word) for word in words if word))

    def _next(self, options: dict[str, Any]) -> None:
        entry = crontab.get(options["name"], backend=options["backend"])
        if not 1 <= options["count"] <= 1000:
            raise CommandError(f"Invalid --count {options['count']}: use a number from 1 to 1000.")
        if entry.state != "active":
            notice(self, f"{plain(entry.name)} is {entry.state}. If it were active, its next times would be:")
        for at in crontab.next_times(entry, options["count"]):
            self.stdout.write(entry.definition.local(at))

    def _pause(self, options: dict[str, Any]) -> None:
        crontab.pause(options["name"], options["reason"], by=user_name("manage.py"), backend=options["backend"])
        self.stdout.write(f"{plain(options['name'])} is paused.")

    def _resume(self, options: dict[str, Any]) -> None:
        entry = crontab.resume(options["name"], by=user_name("manage.py"), backend=options["backend"])
        self.stdout.write(f"{plain(options['name'])} is resumed{_next_words(entry)}.")

    def _run_now(self, options: dict[str, Any]) -> None:
        ticked = crontab.run_now(options["name"], by=user_name("manage.py"), backend=options["backend"])
        if ticked.job_id is None:
            raise CommandError(
                f"Nothing was enqueued: {ticked.reason}. An unfinished job of this entry holds its unique key."
            )
        self.stdout.write(f"Job {ticked.job_id} is enqueued.")

    def _remove(self, options: dict[str, Any]) -> None:
        crontab.remove(options["name"], backend=options["backend"])
        self.stdout.write(f"{plain(options['name'])} is removed.")

    def _reset(self, options: dict[str, Any]) -> None:
        entry = crontab.reset(options["name"], by=user_name("manage.py"), backend=options["backend"])
        self.stdout.write(f"{plain(options['name'])} is reset{_next_words(entry)}.")

    def _add(self, options: dict[str, Any]) -> None:
        values = {name: options[name] for name in crontab.FIELDS if options.get(name) is not None}
        # Django has an argument of its own that is called args.
        values |= {"args": options["task_args"], "kwargs": options["task_kwargs"]}
        for name in ("task", "expression"):
            values.pop(name)
        entry = crontab.add(
            options["name"],
            options["task"],
            options["expression"],
            by=user_name("manage.py"),
            backend=options["backend"],
            **values,
        )
        self.stdout.write(f"{entry.name} is added{_next_words(entry)}.")


def _add_definition(add: argparse.ArgumentParser) -> None:
    add.add_argument("name")
    add.add_argument("expression", help="In quotes: '0 6 * * mon'.")
    add.add_argument("task", help="The path of a registered task: shop.tasks.send_report.")
    add.add_argument(
        "--args", dest="task_args", type=_json(list), default=[], metavar="JSON", help="A list: '[1, \"two\"]'."
    )
    add.add_argument(
        "--kwargs", dest="task_kwargs", type=_json(dict), default={}, metavar="JSON", help="A dict: '{\"days\": 7}'."
    )
    add.add_argument("--timezone", metavar="ZONE", help="Default: the project's TIME_ZONE.")
    add.add_argument("--queue", default="", metavar="NAME", help="Default: the task's.")
    add.add_argument("--priority", type=int, metavar="N", help="Default: the task's.")
    add.add_argument("--misfire", choices=MISFIRES, help="Which missed runs to enqueue late. Default: latest.")
    add.add_argument(
        "--misfire-window",
        type=whole_seconds,
        dest="misfire_window_seconds",
        metavar="DURATION",
        help="With --misfire all: the age of the oldest missed run to enqueue: 90 (seconds), 90m, '2 hours'.",
    )
    add.add_argument(
        "--overlap", choices=OVERLAPS, help="What to do while its previous job is unfinished. Default: allow."
    )
    add.add_argument(
        "--jitter",
        type=whole_seconds,
        dest="jitter_seconds",
        metavar="DURATION",
        help="Delay each run by a random time up to this long: 90 (seconds), 90m.",
    )
    add.add_argument("--start", type=_when, dest="start_at", metavar="TIME", help="ISO 8601.")
    add.add_argument("--end", type=_when, dest="end_at", metavar="TIME", help="ISO 8601.")
    add.add_argument("--max-runs", type=int, metavar="N")


def _row(entry: CronEntry) -> tuple[str, ...]:
    zone = "" if entry.definition.timezone == "UTC" else f" {entry.definition.timezone}"
    state = entry.state + (f", differs from the code: {', '.join(entry.drift)}" if entry.drift else "")
    last = (
        "–"
        if entry.last_nominal_at is None
        else f"{entry.definition.local(entry.last_nominal_at)} {entry.last_outcome}"
    )
    following = _following(entry)
    return (
        entry.name,
        f"{entry.definition.expression}{zone}",
        entry.definition.task,
        state,
        "–" if following is None else entry.definition.local(following),
        last,
        str(entry.runs),
    )


def _facts(entry: CronEntry) -> Iterable[tuple[str, str]]:
    yield "name", plain(entry.name)
    for name, value in entry.definition.as_json().items():
        if value not in (None, ""):
            yield name, plain(json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value)
    yield "source", "database" if entry.code is None else "code"
    yield "state", entry.state
    if entry.paused_at is not None:
        yield "paused", plain(f"{entry.definition.local(entry.paused_at)} by {entry.paused_by}: {entry.pause_reason}")
    for name in entry.drift if entry.code is not None else ():
        yield "drift", plain(f"{name} is {getattr(entry.code, name)!r} in the code")
    yield "created", plain(f"{entry.definition.local(entry.created_at)} by {entry.created_by or 'unknown'}")
    yield "changed", plain(f"{entry.definition.local(entry.changed_at)} by {entry.changed_by or 'unknown'}")
    yield "runs", str(entry.runs)
    if (following := _following(entry)) is not None:
        yield "next", entry.definition.local(following)
    yield (
        "last",
        "–"
        if entry.last_nominal_at is None
        else f"{entry.definition.local(entry.last_nominal_at)} {entry.last_outcome}",
    )


def _as_json(entry: CronEntry) -> dict[str, Any]:
    following = _following(entry)
    return {
        "name": entry.name,
        **entry.definition.as_json(),
        "source": "database" if entry.code is None else "code",
        "state": entry.state,
        "drift": entry.drift,
        "runs": entry.runs,
        "next_at": None if following is None else following.isoformat(),
        "last_nominal_at": None if entry.last_nominal_at is None else entry.last_nominal_at.isoformat(),
        "last_outcome": entry.last_outcome,
    }


def _following(entry: CronEntry) -> datetime | None:
    if entry.state != "active":
        return None
    return next(iter(crontab.next_times(entry, 1)), None)


def _next_words(entry: CronEntry) -> str:
    following = _following(entry)
    return "" if following is None else f"; next at {entry.definition.local(following)}"


def _json(kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise argparse.ArgumentTypeError(f"Invalid JSON {text!r:.80}: {error}") from None
        if not isinstance(value, kind):
            raise argparse.ArgumentTypeError(
                f"Invalid value {text!r:.80}: use a JSON {'array' if kind is list else 'object'}."
            )
        return value

    return parse


def _when(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"Invalid time {text!r:.80}: use ISO 8601, like 2030-01-31T06:00+01:00."
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=timezone.get_default_timezone())
