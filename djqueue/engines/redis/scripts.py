"""The Lua files, all read at import, each with what it uses of the files that they share.

A server makes the functions of a script anew at each call. All that the shared files have would cost ten times what a short verb does, so
a script gets only those that it calls, and what they call.

A worker lives for weeks, and an upgrade may replace the files meanwhile: a script that was read when it is first needed
would be missing, or that of another version.
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
    """By which a server that has seen the text knows it."""


@cache
def script(name: str) -> Script:
    """Return the script in ``lua/<name>.lua``, without its comments.

    Before it comes what it uses of ``lib.lua``, of ``writing.lua``, and of what its first line names: ``-- needs: waiting
    crontab``. The first line ``-- alone`` says that it shares nothing.
    """
    first, _, _ = _TEXTS[name].partition("\n")
    needed = first.removeprefix(_NEEDS).split() if first.startswith(_NEEDS) else []
    own = "\n".join(_lines(name))
    shared = [] if first == _ALONE else [part for file in (*_SHARED, *needed) for part in _definitions(file)]
    text = "\n".join([*_used(own, shared), own]).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


def _used(own: str, shared: list[tuple[set[str], str]]) -> list[str]:
    """Return those definitions, in their order, that the script or another of them names. Whatever defines nothing is used."""
    words = set(_WORD.findall(own))
    used = []
    # A definition only names what stands before it, so one pass from the end finds all.
    for names, text in reversed(shared):
        if not names or names & words:
            words.update(_WORD.findall(text))
            used.append(text)
    return used[::-1]


def _definitions(file: str) -> Iterator[tuple[set[str], str]]:
    """Take a file apart into its outermost statements: the names that each defines, and its text."""
    lines: list[str] = []
    for line in _lines(file):
        # What is indented, and what closes a block, belongs to the statement before it.
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
