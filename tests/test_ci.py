"""How the build treats what fails and what passes when it is repeated."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REPEAT = ROOT / ".ci" / "repeat.py"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def _repeat(*arguments: object) -> tuple[int, str]:
    command = [sys.executable, REPEAT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def _program(directory: Path, *, passes_at: int, output: str = "") -> list[str]:
    """Return a command that records its arguments, and exits 0 from the given run on."""
    calls = directory / "calls"
    text = (
        f"import pathlib, sys; calls = pathlib.Path({str(calls)!r}); calls.touch();"
        f" done = calls.read_text() + ' '.join(sys.argv[1:]) + chr(10); calls.write_text(done);"
        f" print({output!r}); sys.exit(done.count(chr(10)) < {passes_at})"
    )
    return [sys.executable, "-c", text, "--seed", "6"]


def _calls(directory: Path) -> list[str]:
    return (directory / "calls").read_text().splitlines()


def test_passes_at_once(tmp_path: Path, notes: Path) -> None:
    code, _ = _repeat("run", notes, "--", *_program(tmp_path, passes_at=1))
    assert (code, _calls(tmp_path)) == (0, ["--seed 6"])
    assert _repeat("verdict", notes) == (0, "")


def test_chaos_is_repeated_with_the_same_seed(tmp_path: Path, notes: Path) -> None:
    code, _ = _repeat("run", notes, "--", *_program(tmp_path, passes_at=2))
    assert (code, _calls(tmp_path)) == (0, ["--seed 6", "--seed 6"])
    code, shown = _repeat("verdict", notes)
    assert code == 0
    assert re.fullmatch(r"failed, then passed: .*--seed 6\n", shown, re.DOTALL)


def test_what_fails_twice_is_red(tmp_path: Path, notes: Path) -> None:
    code, shown = _repeat("run", notes, "--again", "--last-failed -n 0", "--", *_program(tmp_path, passes_at=3))
    assert (code, _calls(tmp_path)) == (1, ["--seed 6", "--seed 6 --last-failed -n 0"])
    assert "=== failed with exit code 1, once more:" in shown
    assert not notes.exists()


@pytest.mark.parametrize(("count", "expected"), [(3, 0), (4, 1)])
def test_more_than_three_are_red(tmp_path: Path, notes: Path, count: int, expected: int) -> None:
    names = [f"tests/test_a.py::test_{number}[a-b]" for number in range(count)]
    output = "\n".join(f"FAILED {name} - AssertionError: assert 1 == 2" for name in [*names, names[0]])
    code, _ = _repeat("run", notes, "--", *_program(tmp_path, passes_at=2, output=output))
    assert code == 0
    assert notes.read_text().splitlines() == names
    code, shown = _repeat("verdict", notes)
    assert code == expected
    assert shown.count("failed, then passed:") == count
    assert ("FAILED: 4 failures" in shown) == bool(expected)


def test_the_build_repeats_chaos_as_it_was() -> None:
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if "tests.chaos" in line]
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("repeat -- ")
        assert "--seed" in line
