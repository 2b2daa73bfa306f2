from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from djqueue import compat
from djqueue.bulk import insert as bulk
from djqueue.models import Job
from tests import defaults
from tests.defaults import default_store
from tests.processes import environment, eventually

__all__ = ["default_store"]
each_store = [pytest.mark.django_db, pytest.mark.usefixtures("default_store")]
COUNT = "tests.ledger.tasks.count"
DUMMY = f"{compat.FRAMEWORK}.backends.dummy.DummyBackend"


def run(*args: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("bulkinsert", *args, stdout=out, stderr=err)
    except CommandError as error:
        err.write(str(error))
        raise CommandError(err.getvalue()) from None
    return out.getvalue(), err.getvalue()


def write(path: Path, *lines: Any) -> str:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(path)


def stored() -> list[tuple[list[Any], dict[str, Any]]]:
    return [(job.args, job.kwargs) for job in defaults.stored()]


class TestJsonLines:
    pytestmark = each_store

    def test_objects_are_keywords_and_arrays_are_positional(self, tmp_path: Path) -> None:
        out, _ = run(COUNT, write(tmp_path / "a.jsonl", {"number": 1}, [2], "", [3]))

        assert stored() == [([], {"number": 1}), ([2], {}), ([3], {})]
        assert out.startswith("3 jobs stored in")

    def test_lines_whose_text_is_passed_on_are_stored_like_the_first_of_their_shape(self, tmp_path: Path) -> None:
        odd = ['tab\t and \\ and "', "ü\U0001f680", [[1.5, -0.25]], {"n": None}, "\\.", 1e16, 10**30, "x" * 5000]
        values = [value for pair in zip(odd, range(len(odd)), strict=True) for value in pair]

        run(COUNT, write(tmp_path / "a.jsonl", *({"number": value} for value in values)))
        run(COUNT, write(tmp_path / "a.jsonl", *([value] for value in values)))

        assert stored() == [([], {"number": value}) for value in values] + [([value], {}) for value in values]

    def test_a_line_that_does_not_fit_is_found_among_many_that_do(self, tmp_path: Path) -> None:
        lines = [{"number": number} for number in range(500)]
        bad = [{"number": 1, "more": 2}, '{"number": NaN}', {"numbers": 1}]

        with pytest.raises(CommandError) as error:
            run(COUNT, write(tmp_path / "a.jsonl", *lines, *bad, *lines), "--batch-size", "100")

        assert re.findall(r"Line (\d+)", str(error.value)) == ["501", "502", "503"]
        assert stored() == []

    def test_tasks_of_another_backend_take_the_arguments_one_by_one(self, tmp_path: Path) -> None:
        with override_settings(TASKS={**settings.TASKS, "dummy": {"BACKEND": DUMMY, "QUEUES": []}}):
            run(COUNT, write(tmp_path / "a.jsonl", [1], [2], {"number": 3}), "--backend", "dummy")

            results = compat.task_backends["dummy"].results  # type: ignore[attr-defined]
        assert [(result.args, result.kwargs) for result in results] == [([1], {}), ([2], {}), ([], {"number": 3})]

    def test_gzip_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress(b"\xef\xbb\xbf[1]\r\n[2]"))

        run(COUNT, str(path))

        assert stored() == [([1], {}), ([2], {})]

    def test_the_settings_of_the_jobs(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [1])

        run(COUNT, path, "--queue", "mail", "--priority", "7", "--run-after", "2030-01-01T00:00:00")
        run(COUNT, path, "--run-after", "01:00:00")

        first, second = defaults.stored()
        assert (first.queue, first.priority, first.scheduled_at.year) == ("mail", 7, 2030)
        assert 3595 < (second.scheduled_at - second.inserted_at).total_seconds() < 3605

    def test_a_second_run_with_unique_stores_what_is_missing(self, tmp_path: Path) -> None:
        run(COUNT, write(tmp_path / "a.jsonl", [1], [2]), "--unique")

        out, _ = run(COUNT, write(tmp_path / "a.jsonl", [1], [2], [3]), "--unique")

        assert [args for args, _ in stored()] == [[1], [2], [3]]
        assert "2 duplicates skipped" in out

    def test_a_dry_run_stores_nothing(self, tmp_path: Path) -> None:
        out, _ = run(COUNT, write(tmp_path / "a.jsonl", [1], [2]), "--dry-run")

        assert out.startswith("2 jobs would be stored")
        assert stored() == []


class TestCsv:
    pytestmark = each_store

    def test_the_first_line_names_the_arguments(self, tmp_path: Path) -> None:
        run("tests.app.tasks.add", write(tmp_path / "a.csv", "a,b", '"1\nü",2'))

        assert stored() == [([], {"a": "1\nü", "b": "2"})]

    def test_columns_are_mapped_and_converted(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", "name,User ID,extra", 'x,5,"[1]"')

        run("tests.app.tasks.add", path, "--map", "User ID=a:int", "--map", "extra=b:json")

        assert stored() == [([], {"a": 5, "b": [1]})]

    def test_bad_rows_are_told(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", "n", "1", "1,2", "x", '"2\n"', "y")

        with pytest.raises(CommandError) as error:
            run(COUNT, path, "--map", "n=number:int")

        said = str(error.value).splitlines()
        assert said[0] == "Line 3: The row has 2 fields, but the first line has 1."
        assert said[1].startswith("Line 4: 'n' is 'x': invalid literal for int()")
        assert said[2].startswith("Line 7: 'n' is 'y'")

    @pytest.mark.parametrize(
        ("header", "said"),
        [
            ("a;n", "The columns are separated by semicolons."),
            ("a\tn", "The columns are separated by tabs."),
            ("a,a", "Two columns have the same name."),
            ("b", "There is no column 'n'; there are: b."),
        ],
    )
    def test_a_bad_header(self, tmp_path: Path, header: str, said: str) -> None:
        columns = ["--map", "n=number"] if "no column" in said else []

        with pytest.raises(CommandError, match=said):
            run(COUNT, write(tmp_path / "a.csv", header, "1,2"), *columns)


class TestBadLines:
    pytestmark = each_store

    LINES = (
        [1],
        "{nonsense",
        [1, 2, 3],
        {"wrong": 1},
        5,
        '{"number": NaN}',
        '["a\\u0000b"]',
        [2],
        '["\\ud800"]',
        ["x" * 300_000],
    )

    def test_all_are_told_and_nothing_is_stored(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError) as error:
            run(COUNT, write(tmp_path / "a.jsonl", *self.LINES))

        said = str(error.value)
        assert [line.split(":")[0] for line in said.splitlines()[:-1]] == [
            f"Line {n}" for n in (2, 3, 4, 5, 6, 7, 9, 10)
        ]
        assert "8 lines are invalid. Nothing was stored." in said
        assert stored() == []

    def test_bytes_that_are_no_text_are_told(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(b'[1]\n["\xff"]\n["\xfc"]\n')

        with pytest.raises(
            CommandError, match=r"Line 2: The line is not UTF-8\. Convert .*\nLine 3: The line is not UTF-8\.\n"
        ):
            run(COUNT, str(tmp_path / "a.jsonl"))

    @pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
    def test_advice_on_another_encoding_is_given_once(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("number\n1\n2\n", encoding="utf-16")

        with pytest.raises(CommandError) as error:
            run(COUNT, str(tmp_path / name))

        assert str(error.value).count("The line is not UTF-8. Convert the file") == 1

    def test_the_good_ones_are_stored_if_that_is_wanted(self, tmp_path: Path) -> None:
        path, rejects = write(tmp_path / "a.jsonl", *self.LINES), tmp_path / "rejects"

        with pytest.raises(SystemExit) as exit:
            run(COUNT, path, "--continue-on-error", "--rejects", str(rejects))

        assert exit.value.code == 3
        assert stored() == [([1], {}), ([2], {})]
        lines = Path(path).read_text().splitlines()
        assert rejects.read_text().splitlines() == [line for n, line in enumerate(lines) if n not in (0, 7)]

    def test_only_the_first_hundred_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="and 150 more"):
            run(COUNT, write(tmp_path / "a.jsonl", *["?"] * 250))

    def test_rejects_need_the_wish_to_go_on(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="requires --continue-on-error"):
            run(COUNT, "-", "--rejects", str(tmp_path / "x"))

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (("no.such.task", "-"), "No task named"),
            ((COUNT, "/no/such/file"), "Nothing was stored. .*No such file"),
            ((COUNT, "-", "--priority", "1000"), "priority"),
            ((COUNT, "-", "--backend", "none"), "none"),
            ((COUNT, "-", "--run-after", "soon"), "takes an ISO time or a duration"),
            ((COUNT, "-", "--map", "x"), "column=argument"),
            ((COUNT, "/dev/null", "--map", "x=nope"), r"count\(\) has no parameter 'nope'\. It has: number"),
            ((COUNT, "-", "--map", "x=y:date"), "Invalid type 'date': use"),
        ],
    )
    def test_wrong_arguments_are_a_sentence(self, args: tuple[str, ...], said: str) -> None:
        with pytest.raises(CommandError, match=said):
            run(*args)

    def test_the_import_function_raises_them(self, tmp_path: Path) -> None:
        from tests.ledger import tasks

        with pytest.raises(bulk.BadLines) as error:
            bulk.bulk_insert(tasks.count, io.StringIO("[1]\n[\n"))

        assert (error.value.count, error.value.lines[0].number, error.value.lines[0].text) == (1, 2, "[\n")


class Lines(io.TextIOBase):
    """A file whose lines come from a generator."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # the base's is of bytes
        return next(self._lines, "")


class TestReadingAhead:
    @pytest.mark.django_db  # an engine without transactions reads to the end before it stores anything
    def test_whoever_stops_taking_stops_the_reading(self) -> None:
        from tests.ledger import tasks

        read: list[int] = []

        def lines() -> Iterator[str]:
            for number in itertools.count():
                read.append(number)
                yield f"[{number}]\n"

        def stop(count: int) -> None:
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            bulk.bulk_insert(tasks.count, Lines(lines()), batch_size=10, on_progress=stop)

        assert len(read) < 200
        assert not [thread for thread in threading.enumerate() if thread.name == "djqueue-bulk-reader"]

    @pytest.mark.django_db
    @pytest.mark.usefixtures("default_store")
    def test_what_fails_while_reading_fails_the_call_and_nothing_is_stored(self) -> None:
        from tests.ledger import tasks

        def lines() -> Iterator[str]:
            yield from ("[1]\n", "[2]\n", "[3]\n")
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            bulk.bulk_insert(tasks.count, Lines(lines()), batch_size=1)

        assert stored() == []


@pytest.mark.django_db(transaction=True)
class TestKilled:
    """On PostgreSQL: on Redis a file is read to its end before anything is stored."""

    def test_interrupted_while_it_waits_for_lines_it_ends_at_once_and_has_stored_nothing(self) -> None:
        command = [sys.executable, "-m", "django", "bulkinsert", COUNT, "-", "--batch-size", "100"]
        before = sequence()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=environment(), **pipes) as process:  # type: ignore[call-overload]
            process.stdin.write(b"[1]\n" * 5000)  # and it waits for more
            process.stdin.flush()
            eventually(lambda: sequence() > before + 4000)

            process.send_signal(signal.SIGINT)

            assert process.wait(20) == 130
            assert process.stderr.read() == b"Interrupted; nothing was stored.\n"
        assert not Job.objects.exists()

    def test_in_the_middle_nothing_is_stored_and_a_second_run_stores_all(self) -> None:
        def start() -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "django", "bulkinsert", COUNT, "-", "--batch-size", "100"]
            return subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        lines = b"".join(b"[%d]\n" % number for number in range(5000))
        process = start()
        assert process.stdin is not None
        process.stdin.write(lines)  # and it waits for more
        process.stdin.flush()
        eventually(lambda: sequence() > 4000)
        process.send_signal(signal.SIGKILL)
        process.communicate()

        assert not Job.objects.exists()
        out, _ = start().communicate(lines)
        assert out.startswith(b"5,000 jobs stored")
        assert Job.objects.count() == 5000


class TestInterrupted:
    pytestmark = each_store

    def test_it_says_what_is_stored(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default_store: str) -> None:
        def interrupt(progress: object, count: int) -> None:
            if count == 4:
                raise KeyboardInterrupt

        monkeypatch.setattr("djqueue.management.commands.bulkinsert._Progress.__call__", interrupt)
        err = io.StringIO()

        with pytest.raises(SystemExit) as exit:
            call_command(
                *("bulkinsert", COUNT, write(tmp_path / "a.jsonl", *([n] for n in range(6))), "--batch-size", "2"),
                stderr=err,
            )

        assert exit.value.code == 130
        if default_store == "postgres":
            # The reader, ahead of it, is at the end: for all that the command knows the database might be committing.
            assert "othing was stored" in err.getvalue()
        else:
            assert err.getvalue().startswith("Interrupted. 4 jobs are stored, and perhaps those of the batch")
        assert len(stored()) == (0 if default_store == "postgres" else 4)

    def test_a_closed_standard_input_is_a_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", None)

        with pytest.raises(CommandError, match="Standard input is closed"):
            run(COUNT, "-")


def sequence() -> int:
    """How many ids were given out, which a rollback does not take back."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value - (SELECT coalesce(min(id), 0) FROM djqueue_job) FROM djqueue_job_id_seq")
        return int(cursor.fetchone()[0])
