"""What servers of every kind have in common: who owns a directory, and how its server starts and ends."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from djqueue.contrib.embedded.process import (
    EmbeddedError,
    Lock,
    command_of,
    end,
    free_port,
    home_for,
    inhabitants,
    is_alive,
    is_free,
    spawn,
    temporary_home,
    unprivileged_id,
    wait_until,
    write_private,
)

StopMode = Literal["fast", "immediate"]


class TryAgain(EmbeddedError):
    """Another process took the port between our check and the server's, or the last children of a killed server are
    still there."""


@dataclass(frozen=True)
class Status:
    """What a directory tells about the server that runs in it, or did."""

    pid: int | None
    port: int | None
    is_ready: bool


class Server(ABC):
    """A server that listens on a free port of 127.0.0.1 and ends with this process.

    When a living process owns a server in the same directory already, that one is joined: ``url`` leads to
    it, and only its owner can stop it (``is_owner`` is false).
    """

    product: ClassVar[str]
    variable: ClassVar[str]
    """Where users name a server of their own instead."""
    stop_signals: ClassVar[Mapping[StopMode, signal.Signals]]
    passing_problems: ClassVar[tuple[str, ...]]
    """What the log says when another attempt may succeed."""
    libraries: Path | None = None

    def __init__(self, name: str, directory: str | Path | None, settings: Mapping[str, object] | None) -> None:
        if sys.platform == "win32":
            raise EmbeddedError(
                f"The embedded {self.product} does not run on Windows. Set {self.variable} to a server of yours."
            )
        self.settings = dict(settings or {})
        self.is_owner = False
        self.port: int | None = None
        self._exit = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        home = home_for(Path(directory)) if directory else self._exit.enter_context(temporary_home())
        self.data_directory = home / name
        self.log = home / f"{name}.log"
        self._password_file = home / f"{name}.password"
        self._port_file = home / f"{name}.port"
        self._lock = Lock(home / f"{name}.lock")

    @property
    @abstractmethod
    def url(self) -> str:
        """The address, with the password."""

    @property
    def pid(self) -> int | None:
        """The process id of the server, or None when it does not run."""
        status = self._read_status()
        return status.pid if status and status.pid is not None and is_alive(status.pid) else None

    def start(self) -> None:
        """Start the server, or join the one that runs in our directory; return when it takes connections.

        The port is the one from before, so that clients find the server again: after ``stop()`` in any case, and
        with a directory of one's own at every start, unless something else listens there by then.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if not self.is_owner and not self._become_owner_or_join():
            return
        self._clear_the_way()
        if not self.data_directory.exists():
            self._make_data_directory()
        for attempts_left in (4, 3, 2, 1, 0):
            port = self.port or self._port_from_before() or free_port()
            try:
                self._process = self._launch(port)
            except TryAgain:
                if not attempts_left:
                    raise
                time.sleep(0.2)
            else:
                self.port = port
                self._port_file.write_text(str(port))
                return

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server: ``fast`` in good order, ``immediate`` is a crash (the next start recovers)."""
        if not self.is_owner:
            if self.port is not None:
                raise EmbeddedError(
                    f"The server in {self.data_directory} belongs to another process; only that can stop it."
                )
            return
        if self._process is None:
            return
        if not end(self._process, self.stop_signals[mode], timeout=30) and not end(
            self._process, self.stop_signals["immediate"], timeout=10
        ):
            end(self._process, signal.SIGKILL, timeout=10)
        self._process = None
        # A server waits for its children, except when it was killed. Those of PostgreSQL hold the shared memory
        # that the next start needs.
        wait_until(lambda: not inhabitants(self.data_directory), timeout=10)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start again, on the same port."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server if it is ours, and let go of the directory; a temporary one is removed."""
        try:
            if self.is_owner:
                self.stop()
        finally:
            self.is_owner = False
            self.port = None
            self._lock.release()
            self._exit.close()

    def _make_data_directory(self) -> None:
        """Make it beside its final place and rename, so that one that is not complete is never used."""
        new = self.data_directory.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        self._make_password()
        if (user := unprivileged_id()) is not None:
            os.chown(new, user, user)
        self._fill(new)
        new.rename(self.data_directory)

    @abstractmethod
    def _fill(self, directory: Path) -> None:
        """Put into a new data directory what the server expects there."""

    @abstractmethod
    def _command(self, port: int) -> list[str | Path]:
        """Write down what the server must know, and return how it is called."""

    @abstractmethod
    def _read_status(self) -> Status | None:
        """Say what stands in the directory; None when nothing ran there, or it ended in good order."""

    @abstractmethod
    def _forget(self, pid: int) -> None:
        """Deal with the notes of a server that has ended without removing them."""

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        """Start the server and wait until it takes connections."""
        log_start = self.log.stat().st_size if self.log.exists() else 0
        process = spawn(
            self._command(port),
            directory=self.data_directory.parent,
            log=self.log,
            libraries=self.libraries,
            death_signal=self.stop_signals["fast"],
        )

        def settled() -> bool:
            status = self._read_status()
            return process.poll() is not None or (status is not None and status.pid == process.pid and status.is_ready)

        if wait_until(settled, timeout=60) and process.poll() is None:
            return process
        end(process, self.stop_signals["immediate"], timeout=10)
        message = tail(self.log, start=log_start)
        raise (TryAgain if any(words in message for words in self.passing_problems) else EmbeddedError)(
            f"{self.product} did not start in {self.data_directory} on port {port}:\n{message}"
        )

    def _port_from_before(self) -> int | None:
        """Return the port that the last server of this directory had, if it is free."""
        try:
            port = int(self._port_file.read_text())
        except (OSError, ValueError):
            return None
        return port if is_free(port) else None

    def _make_password(self) -> str:
        """Make a password: a user who can connect can make the server write files as its user, and every user of
        this machine can reach the port."""
        password = secrets.token_urlsafe(24)
        write_private(self._password_file, password)
        return password

    @property
    def _password(self) -> str:
        return self._password_file.read_text()

    def _address(self) -> str:
        """Return host and port, as an address has them."""
        if self.port is None:
            raise EmbeddedError(f"The embedded {self.product} has no address before it was started.")
        return f"127.0.0.1:{self.port}"

    def _become_owner_or_join(self) -> bool:
        """Take the directory, or find the server of the process that has it; return whether it is ours."""

        def decided() -> bool:
            if self._lock.acquire(timeout=0):
                self.is_owner = True
                return True
            status = self._read_status()
            if status is not None and status.is_ready and self._password_file.exists():
                self.port = status.port
                return True
            return False  # its owner makes, starts or stops it at the moment

        if not wait_until(decided, timeout=60, interval=0.05):
            raise EmbeddedError(
                f"Another process has held {self._lock.path} for a minute without a server getting ready. "
                "End it and try again."
            )
        return self.is_owner

    def _clear_the_way(self) -> None:
        """Deal with what a killed owner left: a server that still shuts down, or a file with
        a process id that another process has by now."""
        if (status := self._read_status()) is None or status.pid is None:
            return
        pid = status.pid
        if self._is_our_server(pid):
            # We hold the lock, so its owner is dead. On Linux the kernel has stopped it; elsewhere nothing
            # has.
            with suppress(ProcessLookupError):
                os.kill(pid, self.stop_signals["fast"])
            if not wait_until(lambda: not self._is_our_server(pid), timeout=30):
                raise EmbeddedError(
                    f"A server that lost its owner runs in {self.data_directory} and does not end. "
                    f"Stop it: kill -{self.stop_signals['immediate'].name.removeprefix('SIG')} {pid}"
                )
        wait_until(lambda: not inhabitants(self.data_directory), timeout=10)
        self._forget(pid)

    def _is_our_server(self, pid: int) -> bool:
        return str(self.data_directory) in command_of(pid)


def tail(log: Path, *, start: int = 0, lines: int = 15) -> str:
    with log.open("rb") as file:
        file.seek(start)
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


S = TypeVar("S", bound=Server)


@contextmanager
def running(server: S) -> Iterator[S]:
    """Run a server for the duration of a block."""
    try:
        server.start()
        yield server
    finally:
        server.close()
