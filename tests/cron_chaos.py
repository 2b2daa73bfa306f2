"""Three minutes of cron among processes that are killed, for people to run: ``python -m tests.cron_chaos``.

Two ``runcron`` and two ``runworker`` with cron, started 0.4 s apart, and a scheduler whose clock is set back and forth. Every
few seconds one of them is killed with SIGKILL and started again. At the end each nominal time of a one-second and a
one-minute entry must have exactly one tick and one job, and none may be missing.

Works in a database of its own beside the one that DATABASE_URL names, and drops it afterwards.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit

import psycopg

DATABASE = "djqueue_cron_chaos"
STEPS = (0.0, -3.0, 2.0, -90.0, 0.7, -0.003)
"""Seconds by which the clock of the stepping scheduler is wrong, one after the other."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--stepping", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stepping:
        run_stepping()
    else:
        seed = options.seed if options.seed is not None else random.randrange(10_000)
        with database(os.environ["DATABASE_URL"]) as url:
            sys.exit(run(url, options.seconds, random.Random(seed), seed))


def run(url: str, seconds: float, chance: random.Random, seed: int) -> int:
    env = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.crontab.settings"}
    django = [sys.executable, "-m", "django"]
    subprocess.run([*django, "migrate", "-v", "0"], env=env, check=True)
    commands = [
        [*django, "runcron", "-v", "0"],
        [*django, "runworker", "-v", "0"],
        [*django, "runcron", "-v", "0"],
        [*django, "runworker", "-v", "0", "--worker-name", "two"],
        [sys.executable, "-m", "tests.cron_chaos", "--stepping"],
    ]

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.DEVNULL)

    processes = []
    for command in commands:
        processes.append(start(command))
        time.sleep(0.4)  # as the test asks for
    end = time.monotonic() + seconds
    killed = 0
    while (rest := end - time.monotonic()) > 0:
        time.sleep(min(rest, chance.uniform(2, 9)))  # chaos has no events to wait for
        place = chance.randrange(len(processes))
        assert processes[place].poll() is None, f"{commands[place]} ended by itself"
        kill(processes[place], signal.SIGKILL)
        killed += 1
        time.sleep(chance.uniform(0, 2))
        processes[place] = start(commands[place])
    for process in processes:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 30
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in processes:
        kill(process, signal.SIGKILL)
    print(f"seed {seed}: {killed} kills in {seconds:g} s")
    return report(url)


def kill(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    process.wait()


def report(url: str) -> int:
    failures = 0
    with psycopg.connect(url) as connection:
        for task, step in (("every_second", 1), ("every_minute", 60)):
            rows = connection.execute(
                "SELECT t.nominal_at, t.outcome, t.job_id, t.at FROM djqueue_crontick t"
                " JOIN djqueue_cronentry e ON e.id = t.entry_id WHERE e.task = %s ORDER BY t.nominal_at",
                [f"tests.crontab.tasks.{task}"],
            ).fetchall()
            jobs = dict(
                connection.execute(
                    "SELECT id, meta #>> '{cron,nominal_at}' FROM"
                    " (SELECT id, task, meta FROM djqueue_job UNION ALL SELECT id, task, meta FROM djqueue_finishedjob) j"
                    " WHERE task = %s",
                    [f"tests.crontab.tasks.{task}"],
                ).fetchall()
            )
            times = [at for at, *_ in rows]
            expected = [times[0] + timedelta(seconds=step * n) for n in range(len(times))] if times else []
            late = sorted((at - nominal).total_seconds() for nominal, _, _, at in rows)
            problems = {
                "missing or doubled times": sum(a != b for a, b in zip(times, expected, strict=True)),
                "times without a job": sum(outcome != "enqueued" for _, outcome, _, _ in rows),
                "jobs without a time": len(set(jobs) - {job for _, _, job, _ in rows}),
                "jobs lost": len({job for _, _, job, _ in rows} - set(jobs)),
                "times with two jobs": len(jobs) - len(set(jobs.values())),
            }
            print(
                f"{task}: {len(times)} times, {len(jobs)} jobs; {problems};"
                f" lateness p50 {late[len(late) // 2] * 1000:.1f} ms, max {late[-1]:.2f} s"
            )
            failures += sum(problems.values())
        finished = connection.execute("SELECT count(*) FROM djqueue_finishedjob WHERE state = 'completed'").fetchone()
        print(f"completed jobs: {finished[0] if finished else 0}")
    print("PASSED" if not failures else "FAILED")
    return 1 if failures else 0


def run_stepping() -> None:
    """Run a scheduler that is told wrong times; the others go by the database's clock."""
    import django

    django.setup()

    from djqueue.engines.postgres import PostgresEngine
    from djqueue.maintenance.scheduler import Scheduler

    scheduler = Scheduler(PostgresEngine("default").open_cron(), store="postgresql:default")
    started = time.monotonic()
    while True:
        step = STEPS[int((time.monotonic() - started) / 5) % len(STEPS)]
        pause = scheduler.run_once(now=datetime.now(UTC) + timedelta(seconds=step))
        time.sleep(max(0.02, min(pause, 0.25)))


@contextmanager
def database(url: str) -> Iterator[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        try:
            yield urlunsplit(urlsplit(url)._replace(path=f"/{DATABASE}"))
        finally:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")


if __name__ == "__main__":
    main()
