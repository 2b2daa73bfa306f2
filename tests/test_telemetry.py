from __future__ import annotations

import logging

import pytest

from djqueue import hooks, telemetry
from tests import events


def test_an_event_is_one_line_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="djqueue"):
        telemetry.emit("djqueue.job.stop", job=7, task="shop.tasks.mail", duration_seconds=0.01234)

    [record] = caplog.records
    assert record.getMessage() == "job.stop job=7 task=shop.tasks.mail duration_seconds=0.012"
    assert record.djqueue == {"job": 7, "task": "shop.tasks.mail", "duration_seconds": 0.01234}  # type: ignore[attr-defined]


def test_no_name_from_the_database_can_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="djqueue"):
        telemetry.emit("djqueue.job.stop", queue="mail\n2030-01-01 CRITICAL all is lost", empty="")

    [record] = caplog.records
    assert "\n" not in record.getMessage()
    assert record.getMessage().endswith("empty=''")


def test_a_text_of_any_size_takes_little_room_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("x" * 1_000_000)

    with caplog.at_level(logging.INFO, logger="djqueue"):
        telemetry.emit("djqueue.job.stop", exc_info=error, exc_text=f"ValueError: {error}", error=error)
        telemetry.emit("djqueue.job.after_commit", exc_info=error)
        hooks.report(error, "Unexpected error in a test.")

    assert len(caplog.records) == 3
    for record in caplog.records:
        line = logging.Formatter("%(message)s").format(record)
        assert "characters left out" in line
        assert len(line) < 20_000
    assert caplog.records[0].djqueue == {"error": error}  # type: ignore[attr-defined]


def test_a_handler_that_fails_fails_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def broken(event: str, fields: object) -> None:
        raise ValueError("broken")

    detach = [telemetry.attach(broken), telemetry.attach(lambda event, fields: seen.append(event))]
    telemetry.emit("djqueue.job.stop", job=1)
    for each in detach:
        each()

    assert seen == ["djqueue.job.stop"]
    assert "Unexpected error in a telemetry handler for the event djqueue.job.stop." in caplog.text


def test_a_traceback_that_is_printed_already_is_not_printed_again(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        with caplog.at_level(logging.INFO, logger="djqueue"):
            telemetry.emit("djqueue.job.stop", exc_info=error, exc_text="as it was printed", job=7)

    [record] = caplog.records
    assert logging.Formatter("%(message)s").format(record) == "job.stop job=7\nas it was printed"
    assert record.exc_info is not None  # for handlers that want more than the text


def test_a_traceback_is_printed_where_nobody_has_done_so(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        with caplog.at_level(logging.INFO, logger="djqueue"):
            telemetry.emit("djqueue.job.stop", exc_info=error)

    assert "ValueError: broken" in caplog.text


def test_readme_lists_every_event_with_its_level_and_fields() -> None:
    assert events.documented() == events.emitted()
