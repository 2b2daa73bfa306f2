"""What does a backlog of a million waiting jobs cost: the speed of adding and of running, memory, disk?"""

from __future__ import annotations

import argparse
import os
import time

from bench import helper
from bench.harness import processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--sample", type=int, default=30_000, help="jobs run for each measurement of speed")
    parser.add_argument("--adds", type=int, default=2000, help="jobs added one by one for each measurement")
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    helper.setup()
    from bench import tasks

    print(helper.describe())
    rates: dict[str, list[float]] = {}
    memory = 0
    for waiting in (0, options.jobs):
        for _ in range(options.repeat):
            helper.empty()
            if waiting:
                began = time.perf_counter()
                tasks.noop.enqueue_many((((), {}) for _ in range(waiting)), batch_size=5000)
                rates.setdefault("enqueue_many of the backlog", []).append(waiting / (time.perf_counter() - began))
                memory = max(memory, processes.memory_of(os.getpid()))
                size = relation_size()
            helper.checkpoint()
            began = time.perf_counter()
            for _ in range(options.adds):
                tasks.noop.enqueue()
            label = f"with {waiting:,} waiting"
            rates.setdefault(f"add one by one, {label}", []).append(options.adds / (time.perf_counter() - began))
            if waiting < options.sample:
                tasks.noop.enqueue_many((((), {}) for _ in range(options.sample)), batch_size=5000)
            helper.checkpoint()
            rate, worker_memory = run_some(options.sample, options.concurrency)
            rates.setdefault(f"run, {label}", []).append(rate)
            print(f"  {label}: {rates[f'add one by one, {label}'][-1]:,.0f} added/s, {rate:,.0f} run/s", flush=True)
    for name, values in rates.items():
        print(f"{name}: {helper.spread(values)} jobs/s")
    print(f"tables and indexes with the backlog: {size / 2**20:,.0f} MiB")
    print(f"largest process of the worker: {worker_memory / 2**20:,.0f} MiB; the enqueuer: {memory / 2**20:,.0f} MiB")


def run_some(count: int, concurrency: int) -> tuple[float, int]:
    """Run at least so many jobs; return the rate and the memory of the worker's largest process."""
    from django.db import connection

    def ended() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM djqueue_finishedjob")
            return int(cursor.fetchone()[0])

    with helper.worker("--concurrency", str(concurrency)) as process:
        helper.eventually(lambda: ended() >= count, 120)
        memory = max(processes.memory_of(pid) for pid in processes.tree(process.pid))
    with connection.cursor() as cursor:
        # By what the jobs themselves say: what is run after we looked counts on both sides.
        cursor.execute(
            "SELECT count(*) / extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM djqueue_finishedjob"
        )
        return float(cursor.fetchone()[0]), memory


def relation_size() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size('djqueue_job') + pg_total_relation_size('djqueue_finishedjob')")
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()
