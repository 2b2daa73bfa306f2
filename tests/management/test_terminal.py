"""What commands take from the shell and print on the terminal."""

from __future__ import annotations

from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command

from djqueue import api, crontab
from djqueue.exceptions import UnknownCron
from djqueue.jobs.lists import JobFilter
from djqueue.maintenance.health import Finding
from djqueue.management.commands import queuehealth
from djqueue.management.commands.runworker import MAX_WORKER_NAME
from djqueue.management.terminal import plain

ESCAPE = "\x1b]0;owned\x07\x1b[31mred\x9b5m\u202e"
SURROGATE = "caf\udce9"


def run(*args: str) -> str:
    out = StringIO()
    call_command(*args, stdout=out, stderr=out)
    return out.getvalue()


def test_t63_a_pause_reason_of_escapes_is_shown_without_them(db: None) -> None:
    api.pause("mail", by=f"a{ESCAPE}", reason=f"down {ESCAPE}")

    said = run("queuestats")

    assert "paused by" in said
    assert "down" in said
    assert not set(ESCAPE) & set("\x1b\x07\x9b\u202e") & set(said)
    run("queuestats", "--json").encode("ascii")


def test_t63_a_finding_of_escapes_is_shown_without_them() -> None:
    out = StringIO()
    command = queuehealth.Command(stdout=out)

    command._report([Finding("holder", False, f"pid 1, {ESCAPE}", f"end {ESCAPE}")])

    assert "\x1b]" not in out.getvalue()
    assert "\x07" not in out.getvalue()


@pytest.mark.parametrize("name", [SURROGATE, ESCAPE, "a\nb", "\0", "x" * (MAX_WORKER_NAME + 1)])
def test_t63_a_worker_name_that_cannot_be_shown_is_refused_in_a_sentence(db: None, name: str) -> None:
    with pytest.raises(CommandError, match="Invalid worker name") as caught:
        call_command("runworker", "--worker-name", name)

    str(caught.value).encode()  # can be printed


@pytest.mark.parametrize("bad", [SURROGATE, "a\0b"])
@pytest.mark.parametrize("option", ["--queue", "--task"])
def test_t25_a_filter_that_no_job_can_match_is_refused_in_a_sentence(db: None, option: str, bad: str) -> None:
    with pytest.raises(CommandError, match=r"no job can have it|Invalid queue name") as caught:
        run("queuectl", "cancel", option, bad, "--yes")

    str(caught.value).encode()


@pytest.mark.parametrize("bad", [SURROGATE, "a\0b", "x" * 10_000, ""])
def test_t25_a_cron_name_that_no_entry_can_have_is_unknown(db: None, bad: str) -> None:
    with pytest.raises(UnknownCron):
        crontab.get(bad)
    for verb in ("show", "pause", "resume", "run-now", "remove", "reset", "next"):
        with pytest.raises(CommandError, match="has no entry"):
            run("cron", verb, bad)


@pytest.mark.parametrize("field", ["queue", "task", "task_prefix"])
@pytest.mark.parametrize("verb", ["cancel", "retry", "discard", "delete"])
def test_t25_the_api_refuses_such_a_filter(db: None, verb: str, field: str) -> None:
    for bad in (SURROGATE, "a\0b", 3):
        values: dict[str, Any] = {field: bad}
        with pytest.raises(ValueError, match=f"Invalid {field}"):
            getattr(api, verb)(JobFilter(**values))
        with pytest.raises(ValueError, match=f"Invalid {field}"):
            api.count(verb, JobFilter(**values))


@pytest.mark.parametrize("argument", ["-1", "0", "9" * 400, "x", "\0", "٣"])
def test_t25_bad_numbers_of_commands_are_refused_in_a_sentence(db: None, argument: str) -> None:
    for option in ("--processes", "--concurrency", "--max-jobs", "--max-rss", "--max-age"):
        if argument == "٣":
            continue  # a number to Python, and as good as 3
        with pytest.raises(CommandError, match=r"whole number|Invalid duration"):
            call_command("runworker", f"{option}={argument}")
    with mock.patch("sys.exit"), pytest.raises(CommandError):
        run("queuectl", "cancel", f"x{argument}")


def test_t63_what_is_printable_stays_as_it_is() -> None:
    assert plain("Grüße, 世界") == "Grüße, 世界"
    assert plain(SURROGATE).isascii()
