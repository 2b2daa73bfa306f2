"""Three minutes of cron among processes that are killed, for people to run: ``python -m tests.cron_chaos``.

Two ``runcron`` and two ``runworker`` with cron, started 0.4 s apart, and a scheduler whose clock is set back and forth. Every
few seconds one of them is killed with SIGKILL and started again. At the end each nominal time of a one-second and a
one-minute entry must have exactly one tick and one job, and none may be missing.

Works in a database of its own beside the one that DATABASE_URL names, and drops it afterwards; with ``--store redis`` on a
Valkey of its own.
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

from djqueue.contrib import embedded
from djqueue.engines.protocol import Engine
from djqueue.jobs.lists import JobFilter

DATABASE = "djqueue_cron_chaos"
STEPS = (0.0, -3.0, 2.0, -90.0, 0.7, -0.003)
"""Seconds by which the clock of the stepping scheduler is wrong, one after the other."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--store", choices=["postgres", "redis"], default="postgres")
    parser.add_argument("--stepping", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stepping:
        run_stepping()
    else:
        seed = options.seed if options.seed is not None else random.randrange(10_000)
        os.environ.update(DJANGO_SETTINGS_MODULE="tests.crontab.settings", DJQUEUE_STORE=options.store)
        with database(os.environ["DATABASE_URL"]) if options.store == "postgres" else server():
            sys.exit(run(options.seconds, random.Random(seed), seed))


def run(seconds: float, chance: random.Random, seed: int) -> int:
    env = dict(os.environ)
    django = [sys.executable, "-m", "django"]
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
    return report()


def kill(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    process.wait()


def report() -> int:
    failures = completed = 0
    engine = engine_here()
    entries = {entry.definition.task: entry for entry in engine.cron.entries()}
    for name, step in (("every_second", 1), ("every_minute", 60)):
        task = f"tests.crontab.tasks.{name}"
        ticks = sorted(engine.cron.ticks(entries[task], 1_000_000), key=lambda tick: tick.nominal_at)
        filter = JobFilter(task=task)
        ids = engine.find(filter, last=engine.count(filter).last, limit=1_000_000)
        found = {id: job for id in ids if (job := engine.get(id)) is not None}
        jobs = {id: job.meta["cron"]["nominal_at"] for id, job in found.items()}
        completed += sum(job.state == "completed" for job in found.values())
        times = [tick.nominal_at for tick in ticks]
        expected = [times[0] + timedelta(seconds=step * n) for n in range(len(times))] if times else []
        late = sorted((tick.at - tick.nominal_at).total_seconds() for tick in ticks) or [0.0]
        problems = {
            "missing or doubled times": sum(a != b for a, b in zip(times, expected, strict=True)),
            "times without a job": sum(tick.outcome != "enqueued" for tick in ticks),
            "jobs without a time": len(set(jobs) - {tick.job_id for tick in ticks}),
            "jobs lost": len({tick.job_id for tick in ticks} - set(jobs)),
            "times with two jobs": len(jobs) - len(set(jobs.values())),
        }
        print(
            f"{name}: {len(times)} times, {len(jobs)} jobs; {problems};"
            f" lateness p50 {late[len(late) // 2] * 1000:.1f} ms, max {late[-1]:.2f} s"
        )
        failures += sum(problems.values())
    print(f"completed jobs: {completed}")
    print("PASSED" if not failures else "FAILED")
    return 1 if failures else 0


def engine_here() -> Engine:
    """The engine of the default backend."""
    import django

    django.setup()

    from djqueue import stores

    engine: Engine = stores.store().engine
    return engine


def run_stepping() -> None:
    """Run a scheduler that is told wrong times; the others go by the store's clock."""
    from djqueue.maintenance.scheduler import Scheduler

    engine = engine_here()
    scheduler = Scheduler(engine.open_cron(), store=engine.store)
    started = time.monotonic()
    while True:
        step = STEPS[int((time.monotonic() - started) / 5) % len(STEPS)]
        pause = scheduler.run_once(now=datetime.now(UTC) + timedelta(seconds=step))
        time.sleep(max(0.02, min(pause, 0.25)))


@contextmanager
def database(url: str) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        try:
            os.environ["DATABASE_URL"] = urlunsplit(urlsplit(url)._replace(path=f"/{DATABASE}"))
            subprocess.run([sys.executable, "-m", "django", "migrate", "-v", "0"], check=True)
            yield
        finally:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")


@contextmanager
def server() -> Iterator[None]:
    with embedded.valkey() as valkey:
        os.environ["REDIS_URL"] = valkey.url
        yield


if __name__ == "__main__":
    main()
