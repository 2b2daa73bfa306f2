"""The Lua files, read once: what they share before each of them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

_DIRECTORY = Path(__file__).parent / "lua"


class Script(NamedTuple):
    name: str
    text: bytes
    sha: bytes
    """By which a server that has seen the text knows it."""


@cache
def script(name: str) -> Script:
    """Return the script in ``lua/<name>.lua``, without its comments."""
    text = "\n".join(_lines("lib") + _lines(name)).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


def _lines(name: str) -> list[str]:
    lines = (_DIRECTORY / f"{name}.lua").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("--")]
