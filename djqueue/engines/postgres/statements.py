"""The SQL files, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_DIRECTORY = Path(__file__).parent / "sql"


@cache
def sql(name: str) -> str:
    """Return the statement in ``sql/<name>.sql`` without its comments."""
    text = (_DIRECTORY / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()
