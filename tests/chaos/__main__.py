from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from djqueue.contrib import embedded
from tests.chaos import plan, stores
from tests.chaos.ledger import DIRECTORY, Ledger, read


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="Default: another one each time; it is printed.")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=20.0, help="Calls to enqueue per second and producer, of 3.")
    parser.add_argument("--plain", action="store_true", help="Leave out the jobs that attack their worker.")
    parser.add_argument("--keep", type=Path, help="Leave ledger and logs in this directory.")
    parser.add_argument("--plan", action="store_true", help="Only print what would be done.")
    parser.add_argument("--backend", choices=sorted(plan.WEIGHTS), default="postgres", help="What is broken.")
    parser.add_argument("--program", help="Another server than Valkey: the path of a redis-server.")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    acts = plan.make(seed, options.minutes * 60, options.backend)
    load = "plain" if options.plain else "hostile"
    print(
        f"chaos: {options.backend}, {load} load, seed {seed}, {options.minutes:g} minutes, {len(acts)} acts", flush=True
    )
    if options.plan:
        print(*acts, sep="\n")
        return 0
    directory = options.keep or Path(tempfile.mkdtemp(prefix="djqueue-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    # fsync off: the machine itself does not crash, and what a killed server wrote, the kernel has.
    settings = {"fsync": False, "max_connections": 200, "log_min_messages": "warning"}
    try:
        with ExitStack() as servers:
            database = servers.enter_context(embedded.postgres(settings=settings))
            store: stores.Store = stores.Postgres(database)
            if options.backend == "redis":
                store = stores.Redis(servers.enter_context(embedded.valkey(program=options.program)), database.url)
            violations = run(
                store, directory, acts, seed, options.minutes * 60, options.rate, is_hostile=not options.plain
            )
            log = stores.log_of(store)
            violations += [
                f"Server log: {line}" for line in log.splitlines() if any(word in line for word in store.odd)
            ]
            print(f"deadlocks that the server resolved: {log.count('deadlock detected')}")
    finally:
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    # Many of one kind must not hide the others.
    kinds = Counter[str]()
    for violation in violations:
        kinds[kind := re.sub(r"\d+", "N", violation.splitlines()[0])] += 1
        if kinds[kind] <= 5:
            print(f"VIOLATION {violation}")
    for kind, count in kinds.items():
        if count > 5:
            print(f"VIOLATION {count} times: {kind}")
    print(f"chaos: {options.backend}, seed {seed}: {len(violations)} violations", flush=True)
    return 1 if violations else 0


def run(
    store: stores.Store,
    directory: Path,
    acts: list[plan.Act],
    seed: int,
    seconds: float,
    rate: float,
    *,
    is_hostile: bool,
) -> list[str]:
    os.environ.update(
        {**store.environment, "DJANGO_SETTINGS_MODULE": "tests.chaos.settings", DIRECTORY: str(directory)}
    )
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests import backlog
    from tests.chaos.checker import Final, History, check
    from tests.chaos.fleet import SLOTS, Fleet
    from tests.chaos.liveness import Watcher, idle_claims, probe
    from tests.chaos.producers import Producer

    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE chaos_effect (job bigint NOT NULL)")
    connection.close()
    ledger = Ledger(directory)
    fleet = Fleet(store, directory, ledger, {**os.environ, "PYTHONWARNINGS": "default"})
    producers = [Producer(seed * 10 + number, ledger, rate, is_hostile=is_hostile) for number in range(3)]
    watcher = Watcher(Ledger(directory))
    problems: list[str] = []
    try:
        began = time.monotonic()
        fleet.start()
        for thread in (*producers, watcher):
            thread.start()
        for act in acts:
            fleet.wait(began + act.at)
            print(act, flush=True)
            fleet.do(act)
        fleet.wait(began + seconds)
        for producer in producers:
            producer.stop()
        fleet.calm_down()
        for producer in producers:
            producer.join(30)
            if producer.is_alive():
                problems.append("A producer hangs.")
        print(f"calm after {time.monotonic() - began:.0f} s, {backlog.live()} jobs left", flush=True)

        def settle(what: str, limit: float, is_done: Callable[[], bool]) -> None:
            deadline = time.monotonic() + limit
            while not is_done() and time.monotonic() < deadline:
                fleet.wait(time.monotonic() + 0.5)
            if not is_done():
                problems.append(f"{what} after {limit:g} s.")

        def workers(is_dead: bool) -> int:
            return sum(worker.is_dead == is_dead for worker in backlog.engine().workers())

        problems += probe(
            directory,
            ledger,
            lambda: set(backlog.worker_pids()),
            lambda seconds: fleet.wait(time.monotonic() + seconds),
        )
        # A sweep for claims without an owner comes once a minute.
        settle("Jobs have not ended", 100, lambda: not backlog.live())
        processes = plan.SUPERVISORS * plan.PROCESSES
        settle("Dead workers are left", 45, lambda: workers(False) == processes)
        settle("Dead workers are left", 45, lambda: not workers(True))
        watcher.stop()
        watcher.join(30)
        fleet.stop()
        settle("Processes are left", 30, lambda: not fleet.survivors())
        time.sleep(0.5)  # a server process lives a moment longer than its client
        with connection.cursor() as cursor:
            cursor.execute("SELECT job, count(*) FROM chaos_effect GROUP BY job")
            effects = Counter(dict(cursor.fetchall()))
        if rows := len(backlog.engine().workers()):
            problems.append(f"{rows} workers left at the end.")
        history = History(
            effects=effects, slots=SLOTS, supervisor_of=fleet.supervisor_of(), process_of=fleet.process_of()
        )
        for job in backlog.jobs():
            history.finals[job.id] = Final(str(job.state), job.attempt, job.max_attempts, live=not job.state.is_final)
        backlog.close()
        problems += store.leftovers()
    finally:
        for thread in (*producers, watcher):
            thread.stop()
        fleet.kill()
    history.problems = [*problems, *fleet.problems, *fleet.log_problems()]
    history.add(read(directory))
    _report(history, fleet.counts)
    return [*check(history), *idle_claims(history)]


def _report(history: object, counts: dict[str, int]) -> None:
    from tests.chaos.checker import History

    assert isinstance(history, History)
    executions = sum(map(len, history.executions.values()))
    repeated = sum(len(all) - 1 for all in history.executions.values() if len(all) > 1)
    natural = sum(e.outcome == "again" for all in history.executions.values() for e in all)
    print("acts:", ", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    print(
        f"jobs: {len(history.enqueued)} acknowledged, {len(history.rolled_back)} rolled back,"
        f" {len(history.finals)} in the store: {dict(Counter(final.state for final in history.finals.values()))}"
    )
    if history.forgotten:
        print(f"forgotten with the store's last second: {len(history.lost())} acknowledged jobs")
    print(
        f"executions: {executions}, of which repeated {repeated}: {natural} by the task's own wish, "
        f"{repeated - natural} by a fault; processes: {len(history.supervisor_of)}"
    )


if __name__ == "__main__":
    sys.exit(main())
