"""``manage.py queuectl``: pause and resume queues; cancel, retry, discard and delete jobs."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import CommandError
from django.db import Error as DatabaseError

from djqueue import api
from djqueue.exceptions import DjqueueError
from djqueue.jobs.control import ControlOutcome
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.names import job_id
from djqueue.jobs.states import JobState
from djqueue.management.arguments import add_backend, duration, queue_name, task_path, user_name
from djqueue.management.backends import database_problem, store_of
from djqueue.management.reporting import EXIT_INTERRUPTED, ReportingCommand
from djqueue.management.terminal import is_confirmed, notice, plain
from djqueue.stores import Store

EXIT_SKIPPED = 3
"""At least one job given by id was skipped; the output says why."""

_NEEDS_STATE = ("retry", "delete")
_TAKES_REASON = ("cancel", "discard")
_HELP = {
    "cancel": "Cancel waiting jobs, and ask running ones to stop.",
    "retry": "Run finished jobs again, and scheduled or retryable ones now.",
    "discard": "Discard waiting jobs.",
    "delete": "Delete finished or waiting jobs permanently.",
}
_SAID = {
    ControlOutcome.CANCELLED: "cancelled",
    ControlOutcome.REQUESTED: "executing, and asked to end",
    ControlOutcome.RETRIED: "available again",
    ControlOutcome.DISCARDED: "discarded",
    ControlOutcome.DELETED: "deleted",
    ControlOutcome.SKIPPED: "skipped",
}


class Command(ReportingCommand):
    help = "Pause and resume queues; cancel, retry, discard and delete jobs, by id or by filter."
    requires_system_checks = ["djqueue"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        pause = verbs.add_parser("pause", help="Stop starting jobs of these queues. Running jobs continue.")
        resume = verbs.add_parser("resume", help="Start jobs of these queues again.")
        for one in (pause, resume):
            one.add_argument("queues", nargs="+", type=queue_name, metavar="QUEUE")
        pause.add_argument("--reason", default="", help="Shown in the admin and by queuestats.")
        for verb, text in _HELP.items():
            one = verbs.add_parser(verb, help=text, description=text)
            one.add_argument("ids", nargs="*", metavar="ID")
            one.add_argument("--state", action="append", default=[], choices=[s.value for s in api.CONTROLLABLE[verb]])
            one.add_argument("--queue", type=queue_name, metavar="NAME")
            one.add_argument("--task", type=task_path, metavar="PATH", help="Like shop.tasks.send.")
            one.add_argument(
                "--older-than",
                type=duration,
                metavar="AGE",
                help="Enqueued (or, if finished, finished) at least this long ago: 90s, '2 hours' or 7d.",
            )
            one.add_argument("--dry-run", action="store_true", help="Only say how many jobs there are.")
            one.add_argument("--yes", action="store_true", help="Do it without asking.")
            if verb in _TAKES_REASON:
                one.add_argument("--reason", default="", help="Kept with each job.")
        add_backend(parser, verbs)

    def handle(self, *, verb: str, backend: str, **options: Any) -> None:
        store = store_of(backend)
        try:
            if verb in ("pause", "resume"):
                self._set_queues(verb, store, options)
            elif options["ids"]:
                self._control_named(verb, backend, options)
            else:
                self._control_found(verb, backend, options)
        except KeyboardInterrupt:
            notice(self, "Interrupted. What is done already stays done; the same command does the rest.")
            sys.exit(EXIT_INTERRUPTED)
        except (DjqueueError, ValueError) as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(database_problem(error, store.database_of_tables)) from error

    def _set_queues(self, verb: str, store: Store, options: dict[str, Any]) -> None:
        names = list(dict.fromkeys(options["queues"]))
        ruled = {queue.name for queue in store.engine.queues()}
        for name in names:
            # One that was taken out of the settings while it was paused can still be resumed.
            if store.queues and name not in store.queues and name not in ruled:
                known = ", ".join(sorted(store.queues))
                raise CommandError(f"There is no queue {name!r}. The queues of this backend are: {known}.")
        for name in names:
            if verb == "pause":
                is_done = api.pause(name, by=user_name("queuectl"), reason=options["reason"], using=store.alias)
                self.stdout.write(f"{name}: {'paused' if is_done else 'is paused already'}.")
            else:
                is_done = api.resume(name, using=store.alias)
                self.stdout.write(f"{name}: {'resumed' if is_done else 'is not paused'}.")

    def _control_named(self, verb: str, alias: str, options: dict[str, Any]) -> None:
        if _filter(options) != JobFilter():
            raise CommandError("Name jobs by their ids, or filter them, not both.")
        ids = [_id(text) for text in options["ids"]]
        if options["dry_run"]:
            for id in ids:
                job = api.get_job(id, using=alias)
                can = job is not None and job.state in api.CONTROLLABLE[verb]
                said = "there is no such job" if job is None else job.state.value
                self.stdout.write(f"{id}: {said}{'' if can or job is None else f', cannot {verb} it'}.")
            return
        skipped = 0
        for controlled in getattr(api, verb)(ids, using=alias, **_values(verb, options)):
            skipped += not controlled.is_done
            why = f" ({plain(controlled.reason)})." if controlled.reason else "."
            self.stdout.write(f"{controlled.id}: {_SAID[controlled.outcome]}{why}")
        if skipped:
            sys.exit(EXIT_SKIPPED)

    def _control_found(self, verb: str, alias: str, options: dict[str, Any]) -> None:
        jobs = _filter(options)
        if jobs == JobFilter():
            raise CommandError(f"Which jobs? Name ids, or filter: queuectl {verb} --queue NAME --state STATE …")
        if verb in _NEEDS_STATE and not jobs.states:
            states = "|".join(s.value for s in api.CONTROLLABLE[verb])
            raise CommandError(f"Which of these jobs? Add --state {states}")
        count = api.count(verb, jobs, using=alias).count
        words = f"{'more than ' if count >= api.COUNT_LIMIT else ''}{count:,} job{'' if count == 1 else 's'}"
        if options["dry_run"] or not count:
            self.stdout.write(f"{words} to {verb}. Nothing was done.")
            return
        if not options["yes"]:
            if not sys.stdin.isatty():
                raise CommandError(f"{words} to {verb}. Add --yes to do it. Nothing was done.")
            if not is_confirmed(f"{verb.capitalize()} {words}? [y/N] "):
                raise CommandError("Nothing was done.")
        report = getattr(api, verb)(jobs, using=alias, **_values(verb, options))
        for outcome, number in report.outcomes.items():
            if outcome is not ControlOutcome.SKIPPED:
                self.stdout.write(f"{number:,} {_SAID[outcome]}.")
        for reason, number in report.skipped.items():
            some = ", ".join(map(str, report.examples[reason]))
            self.stdout.write(f"{number:,} skipped ({plain(reason)}), such as {some}.")


def _filter(options: dict[str, Any]) -> JobFilter:
    return JobFilter(
        states=tuple(map(JobState, options["state"])) or None,
        queue=options["queue"],
        task=options["task"],
        older_than=options["older_than"],
    )


def _values(verb: str, options: dict[str, Any]) -> dict[str, str]:
    return {"by": user_name("queuectl"), "reason": options["reason"]} if verb in _TAKES_REASON else {}


def _id(text: str) -> int:
    if (id := job_id(text)) is None:
        raise CommandError(f"Invalid job id {text!r}: use a whole number. Nothing was done.")
    return id
