"""``manage.py queuehealth``: report whether jobs are being processed, for people and for probes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any

from django.db import Error as DatabaseError

from djqueue.exceptions import EngineDenied, EngineRefused, EngineUnavailable
from djqueue.maintenance.health import MAX_AGE_SECONDS, Finding, judge, judge_outbox
from djqueue.management.arguments import add_backend, seconds
from djqueue.management.backends import database_problem, store_of
from djqueue.management.reporting import ReportingCommand
from djqueue.management.terminal import plain

HEALTHY, UNHEALTHY = 0, 1
_SIGNS = {"ok": "ok  ", "warning": "WARN", "bad": "BAD "}


class Command(ReportingCommand):
    help = "Report whether jobs are being processed. Exit code 0: yes, possibly with warnings; 1: no, or unknown."
    # Probes run often; the checks of the whole project would only slow them down.
    requires_system_checks = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_backend(parser)
        parser.add_argument("--json", action="store_true", help="Write one JSON object.")
        parser.add_argument(
            "--max-age-seconds",
            type=seconds(0, 1e9),
            default=MAX_AGE_SECONDS,
            metavar="N",
            help="Longest acceptable age of the oldest available job of a queue. Default: %(default)g.",
        )

    def handle(self, **options: Any) -> None:
        store = store_of(options["backend"])
        try:
            findings = judge(store.engine.health(), max_age_seconds=options["max_age_seconds"])
        except DatabaseError as error:
            findings = [Finding("database", False, database_problem(error, store.database_of_tables))]
        except EngineDenied as error:
            findings = [Finding("server", False, str(error))]
        except (EngineUnavailable, EngineRefused) as error:
            findings = [
                Finding(
                    "server", False, str(error), "Check that it is running and that its address in TASKS is correct."
                )
            ]
        for outbox in store.outboxes:
            try:
                findings.append(judge_outbox(outbox.backend, outbox.oldest_seconds()))
            except EngineUnavailable as error:
                findings.append(Finding(f"outbox of {outbox.backend}", False, str(error)))
        is_healthy = all(finding.is_ok or not finding.is_fatal for finding in findings)
        if options["json"]:
            self.stdout.write(json.dumps({"is_healthy": is_healthy, "findings": list(map(_as_json, findings))}))
        else:
            self._report(findings)
        if not is_healthy:
            sys.exit(UNHEALTHY)

    def _report(self, findings: list[Finding]) -> None:
        for finding in findings:
            style = (
                self.style.SUCCESS if finding.is_ok else self.style.ERROR if finding.is_fatal else self.style.WARNING
            )
            self.stdout.write(f"{style(_SIGNS[finding.level])}  {plain(finding.name)}: {plain(finding.text)}")
            if finding.advice:
                self.stdout.write(f"      {plain(finding.advice)}")


def _as_json(finding: Finding) -> dict[str, Any]:
    return {**dataclasses.asdict(finding), "level": finding.level}
