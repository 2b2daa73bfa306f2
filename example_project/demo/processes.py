"""Start manage.py commands as child processes that never outlive this one."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.management import CommandError

MANAGE = settings.BASE_DIR / "manage.py"

try:
    _prctl = ctypes.CDLL(None).prctl
except (AttributeError, OSError):  # only Linux has it
    _prctl = None


@contextmanager
def manage(
    *arguments: str, environment: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[subprocess.Popen]:
    """Run ``manage.py`` with these arguments; end it by SIGTERM on leaving, whatever the reason."""
    with open(log, "ab") if log else open(os.devnull, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(MANAGE), *arguments],
            env={**os.environ, **(environment or {}), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output if log else None,
            stderr=subprocess.STDOUT if log else None,
            # A group of its own: Ctrl-C reaches this process alone, which then ends its children in order.
            process_group=0,
            preexec_fn=_die_with_parent,
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen, timeout: float = 40) -> int:
    """Ask the process to end, wait for it, and return its exit code.

    One that does not listen is killed with all its children.
    """
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def must_run(process: subprocess.Popen, name: str, log: Path | None = None) -> None:
    """Raise when the process has ended without being asked to."""
    if process.poll() is not None:
        raise CommandError(f"The {name} ended with exit code {process.returncode}.{tail(log)}")


def tail(log: Path | None, lines: int = 25) -> str:
    if log is None or not log.exists():
        return ""
    text = "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    return f" The end of {log}:\n{text}"


def leave_on_sigterm() -> None:
    """Treat SIGTERM like Ctrl-C, so that everything is cleaned up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _die_with_parent() -> None:
    """Have the kernel end this child when the parent is killed (kill -9)."""
    if _prctl is not None:
        pr_set_pdeathsig = 1
        _prctl(pr_set_pdeathsig, signal.SIGTERM)
