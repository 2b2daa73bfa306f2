"""The SQL and Lua that a process runs are those of its own code, whatever lies in their files by now."""

from __future__ import annotations

from pathlib import Path

import pytest

from djqueue.engines.postgres import statements
from djqueue.engines.redis import scripts

SQL = sorted(path.stem for path in statements.DIRECTORY.glob("*.sql"))
LUA = sorted(path.stem for path in scripts._DIRECTORY.glob("*.lua"))


def test_statements_are_read_before_an_upgrade_in_place_can_replace_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "DIRECTORY", tmp_path)

    assert SQL
    assert all(statements.sql.__wrapped__(name) for name in SQL)


def test_scripts_are_read_before_an_upgrade_in_place_can_replace_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "_DIRECTORY", tmp_path)

    assert LUA
    assert all(scripts.script.__wrapped__(name).text for name in LUA)
