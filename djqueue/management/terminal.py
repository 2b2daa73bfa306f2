"""Talk to the person at the terminal: notices, questions, columns, and texts of others."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from django.core.management.base import BaseCommand


def notice(command: BaseCommand, text: str) -> None:
    """Write a line to standard error without the style that Django gives to errors there."""
    command.stderr.write(text, style_func=str)


def is_confirmed(question: str) -> bool:
    """Ask, and return whether the answer is yes. Ctrl-C and Ctrl-D mean no."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print(file=sys.stderr)
        return False


def plain(value: object) -> str:
    """Return a printable text unchanged and any other with escapes, so that no stored control sequence reaches a terminal."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Return a line per row, with the cells of a column below each other; ``right``: the columns of numbers."""
    rows = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
