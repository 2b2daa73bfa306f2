"""The harness: a database of its own, workers as processes, exact delivery checked, machine and versions printed."""

from __future__ import annotations

import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import django


def setup() -> None:
    """Set Django up and lay djqueue's tables anew."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.settings")
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    empty()


def empty() -> None:
    """Remove all jobs and give the tables the statistics of a fresh start."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE djqueue_job, djqueue_finishedjob, djqueue_worker")
        cursor.execute("VACUUM ANALYZE djqueue_job, djqueue_finishedjob")


def checkpoint() -> None:
    """Gather statistics and write everything out, so that a measurement does not pay for what came before it."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE djqueue_job, djqueue_finishedjob")
        cursor.execute("CHECKPOINT")


def describe() -> str:
    """Name the machine and what runs on it."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),"
            " current_setting('shared_buffers')"
        )
        version, synchronous_commit, fsync, buffers = cursor.fetchone()
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, Django {django.get_version()},"
        f" PostgreSQL {version} (fsync {fsync}, synchronous_commit {synchronous_commit}, shared_buffers {buffers})"
    )


@contextmanager
def worker(*args: str, log: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``manage.py runworker`` quietly for the length of a block; without ``log`` its log lines are made and dropped."""
    command = [sys.executable, "-m", "django", "runworker", "-v", "0", *args]
    process = subprocess.Popen(command, start_new_session=True, stderr=None if log else subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def drain(expected: int, *args: str) -> float:
    """Run the backlog down; return the seconds from the first start to the last end. Fail unless each job ran once."""
    from django.db import connection

    with worker("--drain", *args) as process:
        process.wait(600)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM djqueue_finishedjob"
            " WHERE state = 'completed'"
        )
        count, seconds = cursor.fetchone()
        cursor.execute("SELECT count(*) FROM djqueue_job")
        [left] = cursor.fetchone()
    assert (count, left) == (expected, 0), f"{count} of {expected} jobs completed, {left} left"
    return float(seconds)


def ramp_up(first: int = 10_000) -> float:
    """Return the speed of the first jobs that began, as a share of that of the others; not a number if there are no others."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM min(at)), extract(epoch FROM max(at) FILTER (WHERE number = %s)),"
            " extract(epoch FROM max(at)), count(*) FROM"
            " (SELECT started_at AS at, row_number() OVER (ORDER BY started_at) AS number FROM djqueue_finishedjob) AS job",
            [first],
        )
        began, then, ended, count = cursor.fetchone()
    if count <= first or then in (began, ended):
        return math.nan
    return float(first / (then - began) / ((count - first) / (ended - then)))


def repeat(times: int, measure: Callable[[], float]) -> str:
    """Measure several times; return the median with its range."""
    return spread([measure() for _ in range(times)])


def spread(values: list[float]) -> str:
    """Write the median of some values with their range."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"


@dataclass(frozen=True)
class Costs:
    """What was used up to a moment, by this process and by the sessions of its database."""

    client: float
    """CPU seconds."""
    server: float
    """CPU seconds of the sessions that are open now; not a number when the server runs on another machine."""
    commits: int
    wal_bytes: int

    @classmethod
    def now(cls) -> Costs:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT xact_commit, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, "
                " ARRAY(SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
                " FROM pg_stat_database WHERE datname = current_database()"
            )
            commits, wal_bytes, pids = cursor.fetchone()
        return cls(time.process_time(), sum(map(_server_seconds, pids)), commits, wal_bytes)

    def since(self, before: Costs, jobs: int) -> str:
        """Say what each of so many jobs cost."""
        client, server = ((self.client - before.client), (self.server - before.server))
        return (
            f"{1e6 * client / jobs:,.1f} + {1e6 * server / jobs:,.1f} µs CPU,"
            f" {(self.commits - before.commits) / jobs:.2f} commits, {(self.wal_bytes - before.wal_bytes) / jobs:,.0f} B WAL"
        )


def _server_seconds(pid: int) -> float:
    try:
        if "postgres" not in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
            return math.nan
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return math.nan


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.01)
