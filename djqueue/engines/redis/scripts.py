"""The Lua files, read once: what they share before each of them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

_NEEDS = "-- needs:"
_DIRECTORY = Path(__file__).parent / "lua"


class Script(NamedTuple):
    name: str
    text: bytes
    sha: bytes
    """By which a server that has seen the text knows it."""


@cache
def script(name: str) -> Script:
    """Return the script in ``lua/<name>.lua``, without its comments.

    Its first line may say what else it needs before it: ``-- needs: waiting crontab``.
    """
    first, _, _ = _read(name).partition("\n")
    needed = first.removeprefix(_NEEDS).split() if first.startswith(_NEEDS) else []
    text = "\n".join(line for part in ("lib", *needed, name) for line in _lines(part)).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


def _lines(name: str) -> list[str]:
    return [line for line in _read(name).splitlines() if line.strip() and not line.lstrip().startswith("--")]


def _read(name: str) -> str:
    return (_DIRECTORY / f"{name}.lua").read_text(encoding="utf-8")
