"""``manage.py benchqueue``: measure this machine, this database and these settings."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import django
from django.core.management.base import CommandError

import djqueue
from djqueue.api import DEFAULT_ALIAS
from djqueue.benchmark.figures import Figures, as_json, plot, table
from djqueue.benchmark.record import VARIABLE
from djqueue.management.arguments import seconds
from djqueue.management.backends import store_of
from djqueue.management.reporting import ReportingCommand
from djqueue.management.terminal import notice

_LEAST_JOBS = 100
"""Fewer jobs give no meaningful speed."""


class Command(ReportingCommand):
    help = (
        "Measure how fast jobs are added, run and picked up here. Uses a queue of its own with real workers, checks that"
        " every job ran as often as it should, and deletes its jobs afterwards."
    )
    requires_system_checks = ["djqueue"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--backend", action="append", metavar="ALIAS", help="An entry of TASKS; several are compared side by side."
        )
        parser.add_argument("--jobs", type=int, default=20_000, metavar="N", help="Default: %(default)s.")
        parser.add_argument("--concurrency", default="10,100", metavar="N,N", help="Default: %(default)s.")
        parser.add_argument("--rates", default="100,1000", metavar="N,N", help="Jobs sent per second, for pickup.")
        parser.add_argument(
            "--seconds", type=seconds(0.1, 3600), default=5.0, help="How long jobs are sent at each rate."
        )
        parser.add_argument("--json", metavar="FILE", help="Also write the figures to this file.")
        parser.add_argument(
            "--plot",
            metavar="FILE.svg",
            help="Write a chart of the figures to this file: a panel per scenario, a bar per figure.",
        )

    def handle(self, **options: Any) -> None:
        aliases = list(dict.fromkeys(options["backend"] or [DEFAULT_ALIAS]))
        for name in filter(None, (options["json"], options["plot"])):
            if not Path(name).absolute().parent.is_dir():  # reported before the measurements, which take minutes
                raise CommandError(f"Cannot write {name}: its directory does not exist.")
            if Path(name).is_dir():
                raise CommandError(f"Cannot write {name}: it is a directory.")
        # The tasks do not exist in processes without it.
        with tempfile.TemporaryDirectory(prefix="djqueue-benchmark-") as directory:
            os.environ[VARIABLE] = str(Path(directory) / "record")
            try:
                figures = self._measure(aliases, options)
            except KeyboardInterrupt:
                notice(self, "Interrupted; the jobs of the benchmark are deleted.")
                sys.exit(130)
            finally:
                del os.environ[VARIABLE]
        about = _machine()
        self.stdout.write(about)
        self.stdout.write(table(figures))
        if options["json"]:
            values = {"machine": about, "jobs": options["jobs"], "backends": as_json(figures)}
            _write(options["json"], f"{json.dumps(values, indent=2)}\n")
        if options["plot"]:
            _write(options["plot"], plot(f"manage.py benchqueue: {about}", figures))

    def _measure(self, aliases: Sequence[str], options: dict[str, Any]) -> Figures:
        from djqueue.benchmark import scenarios

        if options["jobs"] < _LEAST_JOBS:
            raise CommandError(f"Invalid --jobs {options['jobs']}: use a number from {_LEAST_JOBS}.")
        plan = scenarios.Plan(
            jobs=options["jobs"],
            concurrency=_numbers("--concurrency", options["concurrency"]),
            rates=_numbers("--rates", options["rates"]),
            seconds=options["seconds"],
        )
        tell = (lambda line: notice(self, line)) if options["verbosity"] > 0 else (lambda line: None)
        try:
            return scenarios.measure(
                [scenarios.Benchmark(alias, store_of(alias).engine, plan) for alias in aliases], tell
            )
        except scenarios.BenchmarkFailed as error:
            raise CommandError(str(error)) from error


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()},"
        f" Django {django.get_version()}, djqueue {djqueue.__version__}"
    )


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"Cannot write {name}: {error.strerror or error}.") from error


def _numbers(option: str, text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise CommandError(f"Invalid {option} {text!r}: use numbers from 1, separated by commas.")
    return numbers
