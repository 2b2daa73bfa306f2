"""``manage.py cron`` and ``manage.py runcron``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from djqueue import crontab
from djqueue.cron.entry import CronTick
from djqueue.exceptions import UnknownCron
from djqueue.models import CronEntry
from tests.cron.test_schedule import HOSTILE
from tests.crontab import tasks
from tests.defaults import committed, default_store, the_job
from tests.processes import environment, eventually, worker

__all__ = ["default_store"]
TASK = tasks.plain.module_path
CRONTAB = {"DJANGO_SETTINGS_MODULE": "tests.crontab.settings"}


def cron(*args: str) -> str:
    out = StringIO()
    call_command("cron", *args, stdout=out, stderr=out)
    return out.getvalue()


def add(name: str = "nightly", *args: str) -> str:
    return cron("add", name, "0 3 * * *", TASK, "--args", "[1]", "--timezone", "Europe/Berlin", *args)


@pytest.mark.django_db
@pytest.mark.usefixtures("default_store")
class TestCron:
    def test_an_empty_crontab(self) -> None:
        assert "empty" in cron("list")
        assert json.loads(cron("list", "--json")) == []

    def test_an_entry_from_its_beginning_to_its_end(self) -> None:
        words = add("nightly", "--kwargs", '{"b": 2}', "--overlap", "skip", "--start", "2030-01-01")
        assert "next at 2030-01-01 03:00:00 CET" in words

        assert "0 3 * * * Europe/Berlin" in cron("list")
        assert [entry["name"] for entry in json.loads(cron("list", "--json"))] == ["nightly"]
        assert cron("next", "nightly", "--count", "2").splitlines() == [
            "2030-01-01 03:00:00 CET",
            "2030-01-02 03:00:00 CET",
        ]
        cron("pause", "nightly", "--reason", "no paper")
        shown = cron("show", "nightly")
        assert "no paper" in shown
        assert '{"b": 2}' in shown
        assert "its next times would be" in cron("next", "nightly")
        assert "is enqueued" in cron("run-now", "nightly")
        assert the_job().kwargs == {"b": 2}
        assert "by hand  enqueued" in cron("show", "nightly")
        assert "is resumed; next at" in cron("resume", "nightly")
        assert "is removed" in cron("remove", "nightly")
        assert "empty" in cron("list")

    @pytest.mark.parametrize("verb", ["show", "pause", "resume", "run-now", "remove", "next", "reset"])
    def test_an_unknown_name_is_an_error(self, verb: str) -> None:
        with pytest.raises(CommandError, match="no entry 'nope'"):
            cron(verb, "nope")

    @pytest.mark.parametrize("expression", [text for text in HOSTILE if isinstance(text, str) and text[:1] != "-"])
    def test_hostile_and_impossible_expressions_are_refused(self, expression: str) -> None:
        with pytest.raises(CommandError):
            cron("add", "x", expression, TASK, "--args", "[1]")

        assert crontab.entries() == []

    @pytest.mark.parametrize(
        "args",
        [
            ("os.system", "--args", '["ls"]'),
            (TASK,),
            (TASK, "--args", "[1"),
            (TASK, "--args", '{"a": 1}'),
            (TASK, "--args", "[1]", "--timezone", "Nope"),
            (TASK, "--args", "[1]", "--misfire", "never"),
            (TASK, "--args", "[1]", "--start", "tomorrow"),
            (TASK, "--args", "[1]", "--max-runs", "0"),
            (TASK, "--args", "[1]", "--queue", "no queue"),
        ],
    )
    def test_what_cannot_work_is_refused(self, args: tuple[str, ...]) -> None:
        with pytest.raises(CommandError):
            cron("add", "x", "@daily", *args)

        assert crontab.entries() == []

    def test_a_backend_that_does_not_exist_is_an_error(self) -> None:
        with pytest.raises(CommandError, match="Cannot use the backend"):
            cron("--backend", "nope", "list")


@pytest.mark.django_db
def test_nothing_that_a_row_holds_reaches_the_terminal_raw() -> None:
    add()
    CronEntry.objects.update(expression="\x1b[2J", task="a\nb", pause_reason="\x1b]0;x\x07")

    for output in (cron("list"), cron("show", "nightly")):
        assert "\x1b" not in output


@committed
@pytest.mark.usefixtures("default_store")
class TestProcesses:
    def test_runcron_reads_the_code_enqueues_and_ends_when_told(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "django", "runcron"],
            env={**environment(), **CRONTAB},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            eventually(lambda: len(_ticks()) >= 3)
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=20)

        assert process.returncode == 0, log
        assert "cron.enqueued" in log
        assert {entry.name for entry in crontab.entries()} >= {"weekly-report", "at-start"}
        _assert_each_second_once()

    def test_a_worker_runs_the_crontab_while_it_leads(self) -> None:
        with worker(env=CRONTAB) as running:
            eventually(lambda: len(_ticks()) >= 3, explain=lambda: running.log)
            # The supervisor knows the tasks now, and is still small.
            assert _resident_megabytes(running.process.pid) < 80
            running.stop()
            assert running.wait() == 0, running.log

        _assert_each_second_once()

    def test_a_worker_without_cron_leaves_it_alone(self) -> None:
        with worker("--no-cron", env=CRONTAB) as running:
            running.wait_for_log("leader.elected")
            running.stop()
            assert running.wait() == 0, running.log

        assert crontab.entries() == []


def _ticks() -> list[CronTick]:
    """What became of the times of the entry that runs each second, oldest first."""
    try:
        return crontab.history(tasks.every_second.module_path)[::-1]
    except UnknownCron:
        return []


def _assert_each_second_once() -> None:
    ticks = _ticks()
    times = [tick.nominal_at for tick in ticks if tick.nominal_at is not None]
    assert [(at - times[0]).total_seconds() for at in times] == list(range(len(ticks)))
    assert all(tick.outcome == "enqueued" for tick in ticks)


def _resident_megabytes(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        [kilobytes] = [line.split()[1] for line in file if line.startswith("VmRSS")]
    return int(kilobytes) / 1024
