"""Text of others on a terminal."""

from __future__ import annotations


def plain(value: object) -> str:
    """Show a text as it is if it is printable, else with its escapes: no control sequence of a stranger's reaches a terminal."""
    text = str(value)
    return text if text.isprintable() else repr(text)
