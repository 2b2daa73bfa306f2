"""A command whose exit code reports its work, whether or not its output can be written."""

from __future__ import annotations

import io
import sys

from django.core.management.base import BaseCommand, OutputWrapper

from djqueue.runtime import logs

EXIT_INTERRUPTED = 130
"""Ended by Ctrl-C."""


class ReportingCommand(BaseCommand):
    """A command that ignores a closed or full standard output and standard error.

    Output usually fails after the work is committed, where ``BaseCommand`` ends with a traceback and exit code 1,
    which would mean that nothing was done.
    """

    is_output_all = False
    """The output is all that the command does: exit with code 1 if it cannot be written, unless its reader left."""

    def run_from_argv(self, argv: list[str]) -> None:
        logs.tolerate_closed_streams()
        _escape_what_the_terminal_cannot_show()
        self.stdout, self.stderr = OutputWrapper(sys.stdout), OutputWrapper(sys.stderr)
        failure = None
        try:
            super().run_from_argv(argv)
        finally:
            if failure := logs.write_failure(sys.stdout):
                self.stderr.write(f"The output could not be written: {failure}")
        if failure and self.is_output_all:
            sys.exit(1)


def _escape_what_the_terminal_cannot_show() -> None:
    """Write ``\\xfc`` for a character that the encoding of standard output lacks, as Python does on standard error.

    A name with an umlaut would otherwise end the command with a traceback, on a terminal in Latin-1 or with ``LC_ALL=C``.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
