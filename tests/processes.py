"""Real worker processes for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from django.db import connection

from tests import backlog


def environment(port: int | None = None) -> dict[str, str]:
    """The environment of a process that works on the test's database, on another port if there is a proxy."""
    settings = {**connection.settings_dict, **({} if port is None else {"HOST": "127.0.0.1", "PORT": port})}
    url = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(
        **{key: quote(str(settings[key]), safe="") for key in ("USER", "PASSWORD", "HOST", "PORT", "NAME")}
    )
    return {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONWARNINGS": "default"}


class WorkerProcess:
    """``manage.py runworker``, or another command, in a process group of its own, with what it logs."""

    def __init__(
        self,
        *args: str,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        command: str = "runworker",
    ) -> None:
        self._asked_at = 0.0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the object
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "django", command, *args],
            env={**environment(), **(env or {})},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        """What it has written so far, after the end of the block too."""
        if not self._log.closed:
            self._log.seek(0)
            self._text = self._log.read().decode()
        return self._text

    def wait_for_log(self, text: str, count: int = 1, timeout: float = 30) -> None:
        eventually(lambda: self.log.count(text) >= count or self.process.poll() is not None, timeout, lambda: self.log)
        assert self.log.count(text) >= count, self.log

    def wait(self, timeout: float = 60) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The worker did not end within {timeout} s:\n{self.log}") from None

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask it to stop, or once more: two signals at once would be one request."""
        time.sleep(max(0.0, self._asked_at + 0.3 - time.monotonic()))
        self._asked_at = time.monotonic()
        self.process.send_signal(number)

    def child_pids(self) -> list[int]:
        """The process ids of its workers, as they announced themselves."""
        return backlog.worker_pids()

    def close(self) -> None:
        """Keep what it has written and close the file."""
        self._text = self.log
        self._log.close()

    def kill_all(self) -> None:
        """kill -9 of the supervisor and its workers together."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@contextmanager
def worker(
    *args: str, env: dict[str, str] | None = None, prefix: Sequence[str] = (), command: str = "runworker"
) -> Iterator[WorkerProcess]:
    """Run a worker, or another command, for the length of a block; whatever is left of it is killed at its end.

    ``prefix``: a command that runs it.
    """
    running = WorkerProcess(*args, env=env, prefix=prefix, command=command)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait(10)
        running.close()


def drain(*args: str) -> str:
    """Run everything that can run now; return the log."""
    with worker("--drain", *args) as running:
        assert running.wait() == 0, running.log
        return running.log


def open_to_others(directory: Path) -> None:
    """Let other users of the machine read a directory that pytest made: it and those above it are private."""
    for path in (directory, *directory.parents):
        path.chmod(0o755)
        if path.name.startswith("pytest-of-"):
            return


def eventually(
    condition: Callable[[], object], timeout: float = 20, explain: Callable[[], object] = lambda: ""
) -> None:
    """Wait until the condition holds; there is no event of another process that a test could wait for."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"It did not happen within {timeout} s. {explain()}"
        time.sleep(0.02)  # looks at another process: there is nothing to wait on
