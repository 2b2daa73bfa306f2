"""The SQL files: what they share is written once, and what is shown is what runs."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from django.db import connection

from djqueue.engines.postgres.show import main
from djqueue.engines.postgres.statements import DIRECTORY, sql

STATEMENTS = sorted(path.stem for path in DIRECTORY.glob("[!_]*.sql"))
INCLUDES = sorted(path.stem.removeprefix("_") for path in DIRECTORY.glob("_*.sql"))
LINES = 6


def written(path: Path) -> list[str]:
    """Return the lines of a file that say something: no comments, no lone brackets."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if re.search(r"\w", line) and not re.match(r"--(?! include:)", line)]


def test_each_include_is_used_at_least_twice():
    used = Counter(
        name
        for path in DIRECTORY.glob("*.sql")
        for name in re.findall(r"^ *-- include: (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )

    assert [name for name in INCLUDES if used[name] < 2] == []


def test_no_file_repeats_six_lines_of_another():
    where: dict[tuple[str, ...], set[str]] = {}
    for path in sorted(DIRECTORY.glob("*.sql")):
        lines = written(path)
        for start in range(len(lines) - LINES + 1):
            where.setdefault(tuple(lines[start : start + LINES]), set()).add(path.name)

    assert {
        files: lines[0] for lines, files in ((k, tuple(sorted(v))) for k, v in where.items()) if len(files) > 1
    } == {}


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_include_is_filled_in(name):
    text = sql(name)

    assert "include" not in text
    assert not re.search(r"\{(?:age|queue|table|errors)\}", text)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["fetch", "insert", "find_live", "whereabouts"])
def test_psql_can_run_what_is_shown(name, capsys):
    assert main([name]) == 0
    shown = capsys.readouterr().out

    # psql puts the values of its variables in as quoted text; null suits every parameter.
    statement = re.sub(r":'\w+'", "NULL", shown)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        assert cursor.fetchall()
    assert "%(" not in shown
    assert "%%" not in shown


def test_the_shown_statement_keeps_the_comments_and_names_its_parameters(capsys):
    assert main(["fetch"]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("-- Claim up to :'limit' available jobs")
    assert "queue = :'queue' AND ready_at IS NOT NULL" in shown
    assert shown.endswith("ORDER BY priority DESC, ready_at, id;\n")


def test_without_a_name_the_statements_are_listed(capsys):
    assert main([]) == 0

    names = capsys.readouterr().out.splitlines()
    assert names == STATEMENTS
    assert all(earlier < later for earlier, later in pairwise(names))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["fetsh"], "Did you mean fetch"),
        (["_filter"], "Call without a name"),
        (["xyzxyz"], "Call without a name to list all statements."),
        (["fetch", "ack"], "Call without a name|Did you mean"),
    ],
)
def test_an_unknown_name_is_answered_with_a_sentence(arguments, hint, capsys):
    assert main(arguments) == 2

    message = capsys.readouterr().err
    assert message.startswith(f"Invalid statement name {' '.join(arguments)!r}: ")
    assert re.search(hint, message)
