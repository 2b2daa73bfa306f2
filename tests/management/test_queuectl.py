from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from djqueue import api
from djqueue.jobs.lists import QueueRules
from tests.admin.conftest import ago
from tests.app.tasks import add, send_mail
from tests.defaults import backend, committed, default_store, fetch, insert, live, stored

__all__ = ["default_store"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("default_store")]
Run = Callable[..., str]


def queues() -> list[QueueRules]:
    return backend().engine.queues()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run queuectl as anna, with no terminal; ``code`` is the exit code that is expected."""
    monkeypatch.setattr("getpass.getuser", lambda: "anna")
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def run(*args: object, code: int = 0) -> str:
        out = io.StringIO()
        ended = 0
        try:
            call_command("queuectl", *map(str, args), stdout=out)
        except SystemExit as exit:
            ended = exit.code
        assert ended == code
        return out.getvalue()

    return run


class TestPause:
    def test_queues_are_paused_with_who_and_why_and_resumed(self, run: Run) -> None:
        assert run("pause", "mail", "reports", "--reason", "No paper.") == "mail: paused.\nreports: paused.\n"

        queue, _ = queues()
        assert (queue.name, queue.paused_at is not None) == ("mail", True)
        assert (queue.paused_by, queue.pause_reason) == ("anna", "No paper.")
        assert run("pause", "mail") == "mail: is paused already.\n"
        assert run("resume", "mail") == "mail: resumed.\n"
        assert run("resume", "mail") == "mail: is not paused.\n"

    def test_with_a_bad_name_none_is_paused(self, run: Run) -> None:
        for option in ("--queue=", "--task="):
            with pytest.raises(CommandError, match=r"Invalid (queue name|task) ''"):
                run("cancel", option)
        with pytest.raises(CommandError, match="Invalid queue name 'a b'"):
            run("pause", "mail", "a b")

        assert queues() == []

    def test_a_queue_that_the_backend_does_not_have_is_a_typing_error(self, run: Run, settings: Any) -> None:
        settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", "mail"]}}

        with pytest.raises(
            CommandError, match=r"There is no queue 'mial'\. The queues of this backend are: default, mail"
        ):
            run("pause", "mail", "mial")

        assert queues() == []

    def test_a_paused_queue_that_left_the_settings_can_be_resumed(self, run: Run, settings: Any) -> None:
        api.pause("old")
        settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default"]}}

        assert run("resume", "old") == "old: resumed.\n"


class TestByIds:
    def test_each_job_is_answered_for(self, run: Run) -> None:
        first, second = add.enqueue(1), add.enqueue(2)

        out = run("cancel", first.id, second.id, "--reason", "Not needed.")

        assert out == f"{first.id}: cancelled.\n{second.id}: cancelled.\n"
        assert {str(job.cancel_request and job.cancel_request["by"]) for job in stored()} == {"anna"}
        assert {job.errors[0]["message"] for job in stored()} == {"Not needed."}

    def test_what_was_skipped_says_why_and_shows_in_the_exit_code(self, run: Run) -> None:
        job = add.enqueue(1)
        api.cancel(job)

        assert run("discard", job.id, 999, code=3) == (
            f"{job.id}: skipped (already cancelled).\n999: skipped (no such job).\n"
        )
        assert run("retry", job.id) == f"{job.id}: available again.\n"
        assert run("discard", job.id) == f"{job.id}: discarded.\n"
        assert run("delete", job.id) == f"{job.id}: deleted.\n"

    def test_with_a_bad_id_nothing_is_done(self, run: Run) -> None:
        job = add.enqueue(1)

        with pytest.raises(CommandError, match="Invalid job id 'x'"):
            run("cancel", job.id, "x")

        assert len(live()) == 1

    @committed
    def test_a_dry_run_says_where_they_are(self, run: Run) -> None:
        job = add.enqueue(1)
        fetch()

        assert run("delete", job.id, 999, "--dry-run") == (
            f"{job.id}: executing, cannot delete it.\n999: there is no such job.\n"
        )

    def test_ids_and_filters_do_not_mix(self, run: Run) -> None:
        with pytest.raises(CommandError, match="not both"):
            run("cancel", 1, "--queue", "mail")


class TestByFilter:
    def test_it_needs_a_filter(self, run: Run) -> None:
        with pytest.raises(CommandError, match="Which jobs"):
            run("cancel")

    @pytest.mark.parametrize("verb", ["retry", "delete"])
    def test_what_could_bring_back_or_destroy_everything_needs_a_state(self, run: Run, verb: str) -> None:
        with pytest.raises(CommandError, match=r"Which of these jobs\? Add --state"):
            run(verb, "--queue", "mail", "--yes")

    def test_a_dry_run_counts_and_does_nothing(self, run: Run) -> None:
        send_mail.enqueue("anna")
        add.enqueue(1)

        assert run("cancel", "--queue", "mail", "--dry-run") == "1 job to cancel. Nothing was done.\n"
        assert len(live()) == 2

    def test_without_a_terminal_it_needs_yes(self, run: Run) -> None:
        add.enqueue(1)

        with pytest.raises(CommandError, match=r"1 job to cancel\. Add --yes to do it\. Nothing was done\."):
            run("cancel", "--queue", "default")

        assert len(live()) == 1

    @pytest.mark.parametrize(("answer", "is_done"), [("y", True), ("YES", True), ("", False), ("n", False)])
    def test_at_a_terminal_it_asks(self, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, is_done: bool) -> None:
        add.enqueue(1)
        add.enqueue(2)
        asked = []
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)

        if is_done:
            assert run("discard", "--state", "available") == "2 discarded.\n"
        else:
            with pytest.raises(CommandError, match="Nothing was done"):
                run("discard", "--state", "available")

        assert asked == ["Discard 2 jobs? [y/N] "]
        assert len(live()) == (0 if is_done else 2)

    def test_all_filters_apply_together(self, run: Run) -> None:
        insert(add, 1, now=ago(hours=3))
        young = add.enqueue(2).id
        other = insert(send_mail, "anna", now=ago(hours=3))
        args = ["--queue", "default", "--task", add.module_path, "--older-than", "2h", "--state", "available", "--yes"]

        assert run("cancel", *args) == "1 cancelled.\n"
        assert [str(job.id) for job in live()] == [young, other]

    @committed
    def test_running_ones_are_asked(self, run: Run) -> None:
        add.enqueue(1)
        fetch()

        assert run("cancel", "--queue", "default", "--yes") == "1 executing, and asked to end.\n"

    @pytest.mark.parametrize("text", ["", "10", "-5m", "1 fortnight", "999999999d", "h", "\0"])
    def test_what_is_no_duration_is_an_error(self, run: Run, text: str) -> None:
        with pytest.raises(CommandError, match="Invalid duration"):
            run("cancel", f"--older-than={text}", "--yes")

    def test_a_state_in_which_nothing_can_be_done_is_an_error(self, run: Run) -> None:
        with pytest.raises(CommandError, match="invalid choice: 'completed'"):
            run("cancel", "--state", "completed", "--yes")


def test_an_unknown_backend_is_named(run: Run) -> None:
    with pytest.raises(CommandError, match="Cannot use the backend 'nowhere' of TASKS"):
        run("pause", "mail", "--backend", "nowhere")


@pytest.mark.parametrize("answer", [EOFError, KeyboardInterrupt])
def test_ctrl_d_and_ctrl_c_at_the_question_mean_no(
    monkeypatch: pytest.MonkeyPatch, answer: type[BaseException]
) -> None:
    def ask(question: str) -> str:
        raise answer

    add.enqueue(1)
    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)

    with pytest.raises(CommandError, match="Nothing was done"):
        call_command("queuectl", "cancel", "--queue", "default")

    assert [job.state for job in live()] == ["available"]


def test_ctrl_c_in_the_middle_of_a_filter_ends_with_a_sentence_and_keeps_what_is_done(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "BATCH", 2)
    for number in range(4):
        add.enqueue(number)
    adds, calls = api.Report.add, []

    def interrupted_after_one(report: api.Report, *args: Any) -> None:
        adds(report, *args)
        calls.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(api.Report, "add", interrupted_after_one)

    run("cancel", "--queue", "default", "--yes", code=130)

    assert "Interrupted. What is done already stays done" in capsys.readouterr().err
    assert len(live()) == 2
