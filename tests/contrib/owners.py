"""Other processes that own servers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import djqueue

ROOT = Path(djqueue.__file__).parent.parent


def start_owner(
    directory: Path | None,
    *,
    server: str = "embedded.postgres({}, settings={{'fsync': False}})",
    python: str = sys.executable,
    user: int | None = None,
    **variables: str,
) -> subprocess.Popen[str]:
    """Start another process that runs a server and prints its address and process id, until its input
    ends."""
    kept = repr(str(directory) if directory else None)
    program = f"""
        import sys
        from djqueue.contrib import embedded

        with {server.format(kept)} as server:
            print(server.url, server.pid, server.is_owner, server.data_directory, flush=True)
            sys.stdin.read()
    """
    return subprocess.Popen(
        [python, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )


def python_for(user: int) -> str | None:
    """Return an interpreter that this user can run: ours, or the system's when ours lies below a closed
    home."""
    question = "import sys, ctypes; assert sys.version_info >= (3, 11)"
    for python in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                [python, "-c", question],
                user=user,
                group=user,
                extra_groups=[],
                check=True,
                cwd="/",
                capture_output=True,
            )
            return python
    return None
