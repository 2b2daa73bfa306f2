"""``manage.py benchqueue``: measure this machine, this database and these settings."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import django
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

import djqueue
from djqueue.api import DEFAULT_ALIAS
from djqueue.benchmark.record import VARIABLE
from djqueue.exceptions import DjqueueError
from djqueue.management.backends import backend_of


class Command(BaseCommand):
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
        parser.add_argument("--seconds", type=float, default=5.0, help="How long jobs are sent at each rate.")
        parser.add_argument("--json", metavar="FILE", help="Write the figures here too.")

    def handle(self, **options: Any) -> None:
        aliases = list(dict.fromkeys(options["backend"] or [DEFAULT_ALIAS]))
        # The tasks do not exist in processes without it.
        with tempfile.TemporaryDirectory(prefix="djqueue-benchmark-") as directory:
            os.environ[VARIABLE] = str(Path(directory) / "record")
            try:
                figures = self._measure(aliases, options)
            finally:
                del os.environ[VARIABLE]
        about = _machine()
        self.stdout.write(about)
        self.stdout.write(table(figures))
        if options["json"]:
            text = json.dumps({"machine": about, "jobs": options["jobs"], "backends": figures}, indent=2)
            Path(options["json"]).write_text(f"{text}\n", encoding="utf-8")

    def _measure(self, aliases: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
        from djqueue.benchmark import scenarios

        try:
            plan = scenarios.Plan(
                jobs=_at_least(options["jobs"], 100),
                concurrency=_numbers(options["concurrency"]),
                rates=_numbers(options["rates"]),
                seconds=options["seconds"],
            )
        except ValueError as error:
            raise CommandError(f"A number from 1 is needed: {error}.") from error
        tell = (lambda line: self.stderr.write(line)) if options["verbosity"] > 0 else (lambda line: None)
        found = {}
        for alias in aliases:
            try:
                found[alias] = scenarios.Benchmark(alias, backend_of(alias).engine, plan, tell).run()
            except (DjqueueError, DatabaseError) as error:
                raise CommandError(f"{alias}: {error}") from error
        return scenarios.as_json(found)


def table(backends: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Lay the figures of several backends side by side."""
    aliases = list(backends)
    rows = [["", *aliases]]
    for place, first in enumerate(backends[aliases[0]]):
        values = [backends[alias][place]["value"] for alias in aliases]
        rows.append(
            [
                first["name"],
                *(
                    f"{value:,.0f} {first['unit']}" if value >= 100 else f"{value:,.1f} {first['unit']}"
                    for value in values
                ),
            ]
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()},"
        f" Django {django.get_version()}, djqueue {djqueue.__version__}"
    )


def _numbers(text: str) -> list[int]:
    return [_at_least(int(word), 1) for word in text.split(",")]


def _at_least(number: int, least: int) -> int:
    if number < least:
        raise ValueError(f"{number} is less than {least}")
    return number
