"""A command whose exit code reports its work, whether or not its output can be written."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand, OutputWrapper

from djqueue.runtime import logs


class ReportingCommand(BaseCommand):
    """A command that ignores a closed or full standard output and standard error.

    Output usually fails after the work is committed, where ``BaseCommand`` ends with a traceback and exit code 1,
    which would mean that nothing was done.
    """

    is_output_all = False
    """The output is all that the command does: exit with code 1 if it cannot be written, unless its reader left."""

    def run_from_argv(self, argv: list[str]) -> None:
        logs.tolerate_closed_streams()
        self.stdout, self.stderr = OutputWrapper(sys.stdout), OutputWrapper(sys.stderr)
        failure = None
        try:
            super().run_from_argv(argv)
        finally:
            if failure := logs.write_failure(sys.stdout):
                self.stderr.write(f"The output could not be written: {failure}")
        if failure and self.is_output_all:
            sys.exit(1)
