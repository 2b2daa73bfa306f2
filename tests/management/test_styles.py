"""Red is for errors: what a command tells of a good run stands on a terminal as plain text."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand

from djqueue import crontab
from djqueue.benchmark import scenarios
from djqueue.bulk import insert as bulk
from djqueue.maintenance.scheduler import Scheduler
from djqueue.runtime.supervisor import Supervisor
from tests.defaults import default_store

__all__ = ["default_store"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("default_store")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(name: str, *args: str) -> str:
    """Run a command and return what it wrote to standard error, with the styles that a terminal gets."""
    command: BaseCommand = import_module(f"djqueue.management.commands.{name}").Command(
        stdout=Terminal(), stderr=Terminal(), force_color=True
    )
    with suppress(SystemExit):
        call_command(command, *args)
    return str(command.stderr._out.getvalue())  # type: ignore[attr-defined]


def runworker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, ...]:
    monkeypatch.setattr(Supervisor, "run", lambda self: 0)
    return ("runworker", "--drain")


def runcron(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, ...]:
    monkeypatch.setattr(Scheduler, "start", lambda self: None)
    return ("runcron",)


def benchqueue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, ...]:
    def measure(benchmarks: Any, tell: Callable[[str], None]) -> dict[str, Any]:
        tell("default: add …")
        return {}

    monkeypatch.setattr(scenarios, "measure", measure)
    return ("benchqueue",)


def bulkinsert(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, ...]:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bulk, "bulk_insert", interrupt)
    (tmp_path / "jobs.jsonl").write_text("[1, 2]\n")
    return ("bulkinsert", "tests.app.tasks.add", str(tmp_path / "jobs.jsonl"))


def cron(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, ...]:
    crontab.add("nightly", "tests.app.tasks.add", "0 3 * * *", args=[1, 2])
    crontab.pause("nightly", "")
    return ("cron", "next", "nightly")


@pytest.mark.parametrize("make", [runworker, runcron, benchqueue, bulkinsert, cron])
def test_t37_a_notice_is_not_styled_as_an_error(
    make: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = on_a_terminal(*make(monkeypatch, tmp_path))

    assert told.strip()
    assert "\x1b" not in told


def test_t37_a_bad_line_is_styled_as_an_error(tmp_path: Path) -> None:
    (tmp_path / "jobs.jsonl").write_text("nonsense\n")

    told = on_a_terminal(
        "bulkinsert", "tests.app.tasks.add", str(tmp_path / "jobs.jsonl"), "--continue-on-error", "--no-progress"
    )

    assert "\x1b[31" in told
