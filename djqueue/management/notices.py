"""Talk to the person at the terminal: notices that are no errors, and questions."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand


def notice(command: BaseCommand, text: str) -> None:
    """Write a line to standard error without the style that Django gives to errors there."""
    command.stderr.write(text, style_func=str)


def is_confirmed(question: str) -> bool:
    """Ask, and take everything but a yes as a no: Ctrl-C and Ctrl-D, too."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print(file=sys.stderr)
        return False
