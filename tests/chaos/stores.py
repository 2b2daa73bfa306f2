"""The servers that are broken, each in the ways that it can break, and what they say of the leftovers."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psycopg
import redis

from djqueue.contrib.embedded import PostgresServer, ValkeyServer

POSTPONED_SECONDS = 2.0
"""A Redis that syncs to the disk each second keeps what it has answered from the file for so long at most."""


class Store(Protocol):
    server: PostgresServer | ValkeyServer
    environment: Mapping[str, str]
    odd: tuple[str, ...]
    """What must not be in the log of the server."""

    def end_connections(self, share: float) -> None: ...

    def refuse(self, what: str, is_on: bool) -> None:
        """Begin or end a spell in which some commands are refused."""

    def crash(self, *, is_power_cut: bool = False) -> float | None:
        """Kill the server; return since when it may have forgotten what it answered, None if it forgets nothing."""

    def leftovers(self) -> Iterator[str]: ...


class Postgres:
    odd = ("PANIC",)

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.environment = {"DATABASE_URL": server.url, "DJQUEUE_STORE": "postgres"}

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.url, autocommit=True, options="-c default_transaction_read_only=off")

    def end_connections(self, share: float) -> None:
        with suppress(psycopg.OperationalError), self.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                " AND pid <> pg_backend_pid() AND random() < %s",
                [share],
            )

    def refuse(self, what: str, is_on: bool) -> None:
        with self.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if is_on else 'off'}")
            connection.execute("SELECT pg_reload_conf()")
        self.end_connections(1.0)

    def crash(self, *, is_power_cut: bool = False) -> float | None:
        self.server.stop("immediate")
        return None

    def leftovers(self) -> Iterator[str]:
        with self.connect() as connection:
            for what, statement in (
                ("advisory locks", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
                (
                    "connections",
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
                ),
                ("jobs in both tables", "SELECT count(*) FROM djqueue_job JOIN djqueue_finishedjob USING (id)"),
            ):
                [[count]] = connection.execute(statement).fetchall()
                if count:
                    yield f"{count} {what} left at the end."


class Redis:
    odd = ("REDIS BUG REPORT", "VALKEY BUG REPORT", "Bad file format")

    def __init__(self, server: ValkeyServer, database_url: str) -> None:
        self.server = server
        self.environment = {"DATABASE_URL": database_url, "DJQUEUE_STORE": "redis", "REDIS_URL": server.url}

    def connect(self) -> redis.Redis:
        return redis.Redis.from_url(self.server.url, decode_responses=True)

    def end_connections(self, share: float) -> None:
        with suppress(redis.RedisError), self.connect() as client:
            for each in client.client_list():
                if random.random() < share:
                    with suppress(redis.ResponseError):  # it has gone by itself
                        client.execute_command("CLIENT", "KILL", "ID", each["id"])

    def refuse(self, what: str, is_on: bool) -> None:
        with suppress(redis.RedisError), self.connect() as client:
            if what == "scripts":
                client.script_flush()
            elif what == "full":
                client.config_set("maxmemory", "1" if is_on else "0")
            else:  # as a primary that has lost its replicas
                client.config_set("min-replicas-to-write", "1" if is_on else "0")

    def crash(self, *, is_power_cut: bool = False) -> float | None:
        since = time.monotonic() - POSTPONED_SECONDS
        if is_power_cut:
            log = max(self.server.data_directory.glob("appendonlydir/*.incr.aof"), key=os.path.getmtime)
            length = log.stat().st_size
            time.sleep(1)  # what is written meanwhile never reaches the disk
            self.server.stop("immediate")
            if log.exists():  # else it was written anew, and that reached the disk
                os.truncate(log, length)
        self.server.stop("immediate")
        return since

    def leftovers(self) -> Iterator[str]:
        with self.connect() as client:
            names = {str(key).partition("}:")[2] for key in client.scan_iter(count=1000)}
            if clients := [each for each in client.client_list() if each["id"] != str(client.client_id())]:
                yield f"{len(clients)} connections left at the end: {clients}."
        for name in ("due", "executing", "workers", "beats", "dead", "waiting"):
            if name in names:
                yield f"The key {name!r} is left at the end."
        if ready := [name for name in names if name.startswith(("ready:", "cancel:"))]:
            yield f"Keys are left at the end: {ready}."


def log_of(store: Store) -> str:
    return Path(store.server.log).read_text(errors="replace")
