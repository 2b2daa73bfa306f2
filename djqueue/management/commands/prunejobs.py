"""``manage.py prunejobs``: delete finished jobs now, by the rules of the settings or of the arguments."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from django.core.management.base import CommandError

from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.records import PruneRule
from djqueue.jobs.states import FINAL_STATES, JobState
from djqueue.management.arguments import add_backend, duration, queue_name
from djqueue.management.backends import store_of
from djqueue.management.reporting import EXIT_INTERRUPTED, ReportingCommand
from djqueue.management.terminal import is_confirmed, notice
from djqueue.stores import Store

STEP = 2000


class Command(ReportingCommand):
    help = (
        "Delete finished jobs that have been kept long enough. The leader of the workers does this continuously; use"
        " this command to do it now, or where no workers run."
    )
    requires_system_checks = ["djqueue"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_backend(parser)
        parser.add_argument("--dry-run", action="store_true", help="Only report how many would be deleted.")
        parser.add_argument(
            "--older-than",
            type=duration,
            metavar="AGE",
            help="Delete jobs that finished longer ago than this (90s, '2 days', 0), regardless of the settings. Asks first.",
        )
        parser.add_argument("--yes", action="store_true", help="With --older-than: do not ask.")
        parser.add_argument(
            "--state",
            action="append",
            choices=[state.value for state in sorted(FINAL_STATES)],
            help="Only jobs in this state; may be given several times. Default: all of them.",
        )
        parser.add_argument("--queue", type=queue_name, metavar="NAME", help="Only jobs of this queue.")

    def handle(self, **options: Any) -> None:
        store = store_of(options["backend"])
        states = [JobState(state) for state in options["state"] or sorted(FINAL_STATES)]
        if options["older_than"] is not None:
            rules = [PruneRule(state, max_age=options["older_than"]) for state in states]
        else:
            rules = [rule for rule in store.settings.prune_rules() if rule.state in states]
        try:
            if options["older_than"] is not None and not options["dry_run"] and not options["yes"]:
                self._ask(self._prune(store, rules, options["queue"], True))
            count = self._prune(store, rules, options["queue"], options["dry_run"])
        except KeyboardInterrupt:
            notice(self, "Interrupted. What is deleted already stays deleted; the same command deletes the rest.")
            sys.exit(EXIT_INTERRUPTED)
        except EngineUnavailable as error:
            raise CommandError(str(error)) from error
        what = "would be deleted" if options["dry_run"] else ("was deleted" if count == 1 else "were deleted")
        self.stdout.write(f"{_jobs(count)} {what}.")

    def _ask(self, count: int) -> None:
        """Raise ``CommandError`` unless the user confirms."""
        if not count:
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{_jobs(count)} to delete. Add --yes to do it. Nothing was done.")
        if not is_confirmed(f"Delete {_jobs(count)}? [y/N] "):
            raise CommandError("Nothing was done.")

    def _prune(self, store: Store, rules: list[PruneRule], queue: str | None, is_dry_run: bool) -> int:
        count = 0
        place: Any = None
        with store.engine.open_maintainer(waits=True) as engine:
            while True:
                began = time.monotonic()
                pruned = engine.prune(rules, place=place, limit=STEP, queue=queue, is_dry_run=is_dry_run)
                count += int(pruned.count)
                place = pruned.place
                if place is None:
                    return count
                # Leave half of the time to the other users of the database.
                time.sleep(time.monotonic() - began)


def _jobs(count: int) -> str:
    return f"{count:,} finished job{'' if count == 1 else 's'}"
