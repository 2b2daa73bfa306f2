"""``manage.py bulkinsert``: a job per line of a file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError
from django.utils.dateparse import parse_datetime

from djqueue import compat
from djqueue.bulk import insert as bulk
from djqueue.bulk import reader as lines
from djqueue.bulk.rejects import Rejects
from djqueue.exceptions import BulkInterrupted, DjqueueError, UnknownTask
from djqueue.jobs.durations import parse_duration
from djqueue.jobs.moments import as_aware
from djqueue.management.reporting import EXIT_INTERRUPTED, ReportingCommand
from djqueue.management.terminal import notice
from djqueue.tasks import registry
from djqueue.tasks.task import Task

EXIT_REJECTED = 3
"""All good lines were stored, and some were bad."""


class Command(ReportingCommand):
    help = (
        "Store one job per line of a file: all lines, or none if any line is bad. A JSON line is an object of keyword"
        " arguments or an array of positional ones; the first line of CSV names the arguments. On PostgreSQL, killed"
        " in the middle it has stored nothing: run it again. On Redis it may have stored a part."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("task", metavar="TASK", help="The path of the task, like shop.tasks.send.")
        parser.add_argument("file", metavar="FILE", help="The file, which may end in .gz, or - for standard input.")
        parser.add_argument(
            "--format", choices=lines.FORMATS, help="Default: csv if the name of the file ends so, else jsonl."
        )
        parser.add_argument(
            "--map",
            action="append",
            default=[],
            metavar="COLUMN=ARG[:TYPE]",
            help="Take only what is named so, under these names. The values of CSV are texts; TYPE is one of"
            f" {', '.join(lines.CONVERTERS)}.",
        )
        parser.add_argument("--queue", metavar="NAME")
        parser.add_argument("--priority", type=int)
        parser.add_argument(
            "--run-after", metavar="WHEN", help="An ISO time, or a duration like 90s, '2 days', PT90M or 01:30:00."
        )
        parser.add_argument("--batch-size", type=int, default=5000, metavar="N", help="Jobs per statement.")
        parser.add_argument("--unique", action="store_true", help="Do not store a job that is already waiting.")
        parser.add_argument("--backend", metavar="ALIAS", help="Which entry of TASKS; otherwise the task's own.")
        parser.add_argument("--dry-run", action="store_true", help="Check all lines and store nothing.")
        parser.add_argument("--continue-on-error", action="store_true", help="Store the good lines if some are bad.")
        parser.add_argument("--rejects", metavar="FILE", help="With --continue-on-error: write the bad lines here.")
        parser.add_argument("--no-progress", action="store_true")

    def handle(self, **options: Any) -> None:
        if options["rejects"] and not options["continue_on_error"]:
            raise CommandError(
                "--rejects requires --continue-on-error: without it, one bad line means that nothing is stored."
            )
        name = options["file"]
        format = options["format"] or ("csv" if Path(name.removesuffix(".gz")).suffix == ".csv" else "jsonl")
        try:
            task = _task(options)
            columns = dict(lines.parse_column(text) for text in options["map"])
        except (DjqueueError, compat.TaskException, compat.InvalidTaskBackend, ValueError) as error:
            raise CommandError(str(error)) from error
        started = time.monotonic()
        rejects: Rejects | None = None
        with ExitStack() as stack:
            try:
                file, share_read = stack.enter_context(lines.open_lines(name, format))
                rejects = stack.enter_context(Rejects(options["rejects"], name, self.stderr.write, bulk.MAX_TOLD))
                progress = _Progress(share_read, is_on=sys.stderr.isatty() and not options["no_progress"])
                result = bulk.bulk_insert(
                    task,
                    file,
                    format=format,
                    columns=columns,
                    batch_size=options["batch_size"],
                    dry_run=options["dry_run"],
                    on_bad=rejects if options["continue_on_error"] else None,
                    on_read=rejects.finish,
                    on_progress=progress,
                )
            except bulk.BadLines as error:
                for line in error.lines:
                    self.stderr.write(str(line))
                if (more := error.count - len(error.lines)) > 0:
                    self.stderr.write(f"… and {more:,} more.")
                raise CommandError(str(error)) from None
            except BulkInterrupted as error:
                raise CommandError(str(error)) from error
            except KeyboardInterrupt as error:
                # A store without transactions notes how far it came, if it has begun.
                said = " ".join(getattr(error, "__notes__", ()))
                if not said and rejects is not None and rejects.is_finished and not options["dry_run"]:
                    said = "Nothing was stored, unless the database was committing at that moment: look for the jobs."
                notice(self, f"Interrupted. {said}" if said else "Interrupted; nothing was stored.")
                sys.exit(EXIT_INTERRUPTED)
            except (OSError, EOFError, ValueError, DjqueueError, compat.TaskException) as error:
                raise CommandError(f"Nothing was stored. {error}") from error
            except DatabaseError as error:
                raise CommandError(f"Nothing was stored. Database error: {str(error).strip()}") from error
        seconds = max(time.monotonic() - started, 1e-9)
        self.stdout.write(_summary(result, seconds, is_dry=options["dry_run"]))
        if result.bad:
            sys.exit(EXIT_REJECTED)


def _task(options: dict[str, Any]) -> Task:
    registry.autodiscover()
    try:
        task = registry.find(options["task"])
    except UnknownTask as error:
        raise CommandError(str(error)) from error
    changes = {"queue_name": options["queue"], "priority": options["priority"], "backend": options["backend"]}
    if options["run_after"] is not None:
        changes["run_after"] = _when(options["run_after"])
    if options["unique"] and task.unique is None:
        changes["unique"] = True
    return task.using(**changes)


def _when(text: str) -> datetime | timedelta:
    try:
        found = parse_datetime(text)
        if found is None:
            return parse_duration(text)
    except ValueError as error:
        raise CommandError(f"--run-after takes an ISO time or a duration: {error}") from error
    return as_aware(found)


def _summary(result: bulk.BulkInserted, seconds: float, *, is_dry: bool) -> str:
    verb = "would be stored" if is_dry else "stored"
    text = f"{result.count:,} job{'' if result.count == 1 else 's'} {verb} in {seconds:,.1f} s ({result.count / seconds:,.0f}/s)"
    if result.first_id is not None:
        text += f", ids {result.first_id} to {result.last_id}"
    if result.duplicates:
        text += f"; {result.duplicates:,} duplicate{'' if result.duplicates == 1 else 's'} skipped"
    if result.bad:
        text += f"; {result.bad:,} invalid line{'' if result.bad == 1 else 's'} skipped"
    return f"{text}."


class _Progress:
    """One line on standard error, if it is a terminal: a bar where the size is known, the rate, the time left."""

    WIDTH = 30

    def __init__(self, share_read: Callable[[], float | None], *, is_on: bool) -> None:
        self._share_read = share_read
        self._is_on = is_on
        self._started = time.monotonic()
        self._last = 0.0

    def __call__(self, count: int) -> None:
        now = time.monotonic()
        if not self._is_on or now - self._last < 0.1:
            return
        self._last = now
        seconds = max(now - self._started, 1e-9)
        text = f"{count:>12,} jobs  {count / seconds:>9,.0f}/s"
        if (share := self._share_read()) is not None and share > 0:
            full = int(share * self.WIDTH)
            left = timedelta(seconds=int(seconds / share - seconds))
            text = f"[{'█' * full}{'·' * (self.WIDTH - full)}] {share:4.0%}{text}  {left} left"
        print(f"\r{text}\033[K", end="\n" if share == 1 else "", file=sys.stderr, flush=True)
