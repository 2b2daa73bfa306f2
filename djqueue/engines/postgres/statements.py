"""The SQL files, all read at import.

A worker lives for weeks, and an upgrade may replace the files meanwhile: a statement that was read when it is first
needed would be missing, or that of another version.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_DIRECTORY = Path(__file__).parent / "sql"
_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in _DIRECTORY.glob("*.sql")}


@cache
def sql(name: str) -> str:
    """Return the statement in ``sql/<name>.sql`` without its comments."""
    return "\n".join(line for line in _TEXTS[name].splitlines() if not line.lstrip().startswith("--")).strip()
