"""The check of wordings, on planted lines."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def english() -> Any:
    spec = importlib.util.spec_from_file_location("english", ROOT / ".ci" / "english.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLANTED = [
    "'a b' is no queue name.",
    "Nobody can cancel completed jobs.",
    "somebody edited the row.",
    "regardless of whoever started it",
    "He that cannot be reached is waited for.",
    "regardless of his permissions",
    "a longer line is told and not kept",
    "the supervisor was told of it",
    "So much for escapes.",
    "the default stands in",
    "lest it be lost",
    "It says nothing of X.",
    "the connection hangs for ever",
    "17: left as it was",
]
ACCEPTED = ["There is no queue 'a'.", "This is no longer true.", "The history of this job", "The worker told apart"]


@pytest.mark.parametrize("text", PLANTED)
@pytest.mark.parametrize("form", ["raise CommandError({!r})", "x = f{!r}", "def f():\n    pass\n\n# {}"])
def test_finds_planted_lines(english: Any, text: str, form: str) -> None:
    assert len(list(english.find(form.format(text), with_prose=True))) == 1


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepts_plain_wordings(english: Any, text: str) -> None:
    assert list(english.find(f"x = {text!r}", with_prose=True)) == []


def test_prose_is_checked_on_request(english: Any) -> None:
    source = '"""Nobody reads this."""\n\nx = 1  # somebody does,\n# and nobody\n# minds\n'
    assert list(english.find(source, with_prose=False)) == []
    lines = {line: text for line, text, _ in english.find(source, with_prose=True)}
    assert sorted(lines) == [1, 3]


def test_finds_what_a_line_break_divides(english: Any) -> None:
    [(line, text, _)] = english.find("x = 1\n# such a name is\n# no queue name\n", with_prose=True)
    assert (line, text) == (2, "such a name is no queue name")


def test_each_pattern_has_a_planted_line(english: Any) -> None:
    for pattern, reason in english.PATTERNS:
        assert reason
        assert any(pattern.search(text) for text in PLANTED), pattern.pattern


def test_the_package_is_clean(english: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code = english.main(ROOT)
    assert (code, [line for line in capsys.readouterr().out.splitlines() if "NOT_YET" not in line]) == (0, [])
    assert re.search(r"english\.py", (ROOT / "run.py").read_text())
