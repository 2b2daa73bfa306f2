"""The Lua files, all read at import, each with the shared definitions that it uses.

A server creates the functions of a script anew at each call. Creating all shared functions would cost ten times the work of
a short verb, so a script includes only those that it calls, and those that they call.

A worker runs for weeks, and an upgrade may replace the files meanwhile. A script that was read only when needed could be
missing, or belong to another version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

_NEEDS = "-- needs:"
_ALONE = "-- alone"
_SHARED = ("lib", "writing")
_DIRECTORY = Path(__file__).parent / "lua"
_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in _DIRECTORY.glob("*.lua")}
_DEFINITION = re.compile(r"local (?:function (?P<function>\w+)|(?P<values>\w+(?:, *\w+)*) *=)")
_WORD = re.compile(r"\w+")


class Script(NamedTuple):
    name: str
    text: bytes
    sha: bytes
    """The hash by which EVALSHA identifies a loaded script."""


@cache
def script(name: str) -> Script:
    """Return the script in ``lua/<name>.lua``, without its comments.

    It is preceded by the definitions that it uses from ``lib.lua``, ``writing.lua`` and the files that its first line names:
    ``-- needs: waiting crontab``. The first line ``-- alone`` says that it uses no shared definitions.
    """
    first, _, _ = _TEXTS[name].partition("\n")
    needed = first.removeprefix(_NEEDS).split() if first.startswith(_NEEDS) else []
    own = "\n".join(_lines(name))
    shared = [] if first == _ALONE else [part for file in (*_SHARED, *needed) for part in _definitions(file)]
    text = "\n".join([*_used(own, shared), own]).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


def _used(own: str, shared: list[tuple[set[str], str]]) -> list[str]:
    """Return the definitions, in order, that the script or another used one names. A part without names is always used."""
    words = set(_WORD.findall(own))
    used = []
    # A definition only uses earlier ones, so one pass from the end finds all.
    for names, text in reversed(shared):
        if not names or names & words:
            words.update(_WORD.findall(text))
            used.append(text)
    return used[::-1]


def _definitions(file: str) -> Iterator[tuple[set[str], str]]:
    """Split a file into its top-level statements; yield the names that each defines, and its text."""
    lines: list[str] = []
    for line in _lines(file):
        # Indented lines, and those that close a block, belong to the statement before them.
        if lines and not line.startswith((" ", "end", "}", ")", "else")):
            yield _defined(lines[0]), "\n".join(lines)
            lines = []
        lines.append(line)
    if lines:
        yield _defined(lines[0]), "\n".join(lines)


def _defined(line: str) -> set[str]:
    found = _DEFINITION.match(line)
    return set(_WORD.findall(found["function"] or found["values"])) if found else set()


def _lines(name: str) -> list[str]:
    return [line for line in _TEXTS[name].splitlines() if line.strip() and not line.lstrip().startswith("--")]
