"""Commands whose output cannot be written: the exit code still says what was done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from djqueue import api
from tests import defaults
from tests.processes import environment

pytestmark = pytest.mark.django_db(transaction=True)
CLOSED_PIPE = "> >(exec <&- 2>&-; sleep 9)"


def run(*args: str, redirected: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'exec "$@" {redirected}', "bash", sys.executable, "-m", "django", *args],
        env={**environment(), "PYTHONUNBUFFERED": unbuffered},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("redirected", "unbuffered"), [(">/dev/full", ""), (">/dev/full", "1"), (CLOSED_PIPE, "1"), (">&- 2>&-", "")]
)
def test_bulkinsert_ends_with_0_when_the_jobs_are_stored_and_its_output_is_lost(
    redirected: str, unbuffered: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("[1]\n[2]\n")

    done = run("bulkinsert", "tests.ledger.tasks.count", str(file), redirected=redirected, unbuffered=unbuffered)

    assert len(defaults.stored()) == 2
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert ("The output could not be written: [Errno 28]" in done.stderr) == ("full" in redirected)


def test_queuectl_pauses_every_queue_although_its_output_is_lost() -> None:
    done = run("queuectl", "pause", "default", "mail", redirected=">/dev/full", unbuffered="1")

    assert done.returncode == 0, done.stderr
    assert all(api.resume(name) for name in ("default", "mail"))


@pytest.mark.parametrize(("redirected", "code"), [(">/dev/full", 1), (">&-", 0)])
@pytest.mark.parametrize("command", [("queuestats", "--json"), ("cron", "list")])
def test_what_only_shows_something_fails_in_a_sentence_on_a_full_disk(
    command: tuple[str, ...], redirected: str, code: int
) -> None:
    done = run(*command, redirected=redirected)

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_health_probe_whose_reader_left_is_answered_by_its_exit_code() -> None:
    done = run("queuehealth", redirected=CLOSED_PIPE, unbuffered="1")

    assert (done.returncode, done.stderr) == (1, "")


def test_what_the_encoding_of_the_terminal_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    task = "tests.ledger.tasks.count"

    added = run("cron", "add", "m\xfcll", "0 3 * * *", task, "--args", "[1]", redirected="1>&2")
    listed = run("cron", "list", redirected="1>&2")

    assert added.returncode == 0, added.stderr
    assert "m\\xfcll is added" in added.stderr
    assert listed.returncode == 0, listed.stderr
    assert "m\\xfcll" in listed.stderr
    assert "Traceback" not in added.stderr + listed.stderr
