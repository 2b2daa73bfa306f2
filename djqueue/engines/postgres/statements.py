"""The SQL files, all read at import.

A worker runs for weeks, and an upgrade may replace the files meanwhile. A statement that was read only when needed could
be missing, or belong to another version.

A line ``-- include: NAME`` is replaced by the text of ``sql/_NAME.sql``, at its own indentation. Arguments after the name
fill placeholders of the included text: ``-- include: filter age=finished_at`` replaces ``{age}`` with ``finished_at``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

DIRECTORY = Path(__file__).parent / "sql"
_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in DIRECTORY.glob("*.sql")}
_INCLUDE = re.compile(r"(?P<indent> *)-- include: (?P<name>\w+)(?P<values>(?: \w+=\S+)*)")


@cache
def sql(name: str) -> str:
    """Return the statement in ``sql/<name>.sql`` with its includes and without comments."""
    return "\n".join(line for line in lines_of(name) if not line.lstrip().startswith("--")).strip()


def lines_of(name: str) -> Iterator[str]:
    """Yield the lines of ``sql/<name>.sql`` with its includes and with all comments."""
    for line in _TEXTS[name].splitlines():
        if found := _INCLUDE.fullmatch(line):
            values = [value.partition("=") for value in found["values"].split()]
            for included in lines_of(f"_{found['name']}"):
                for key, _, value in values:
                    included = included.replace(f"{{{key}}}", value)
                yield found["indent"] + included
        else:
            yield line
