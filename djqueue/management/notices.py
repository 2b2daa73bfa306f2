"""Say something on standard error that is no error."""

from __future__ import annotations

from django.core.management.base import BaseCommand


def notice(command: BaseCommand, text: str) -> None:
    """Write a line to standard error without the style that Django gives to errors there."""
    command.stderr.write(text, style_func=str)
