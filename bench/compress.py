"""What does ``compress=True`` gain and cost: bytes sent, of the table and of WAL, and CPU on both sides of an insert?"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import helper
from bench.harness import processes


def orders(size: int) -> Any:
    words = ("new", "sale", "gift", "spare", "large", "small")
    return [
        {
            "sku": f"A-{random.randint(1, 99_999)}",
            "price": random.randint(1, 9_999) / 100,
            "tags": random.sample(words, 2),
        }
        for _ in range(size // 52)
    ]


def prose(size: int) -> Any:
    words = (Path(__file__).parents[1] / "README.md").read_text().split()
    return " ".join(random.choice(words) for _ in range(size // 7))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=4, help="of arguments for each row of the table")
    options = parser.parse_args()
    helper.setup()
    from bench import tasks

    print(helper.describe())
    print(
        f"{'arguments':>14}  {'compress':8}  {'sent':>8} {'table':>8} {'WAL':>8}  {'client':>8} {'server':>8}   per job"
    )
    kinds: tuple[tuple[str, Callable[[int], Any]], ...] = (("orders", orders), ("prose", prose))
    for kind, make in kinds:
        for size in (2000, 4000, 40_000):
            jobs = [make(size) for _ in range(options.megabytes * 1_000_000 // size)]
            for compress in (False, True):
                helper.empty()
                sent, table, wal, client, server = measure(tasks.noop.using(compress=compress), jobs)
                print(
                    f"{size / 1000:>5.0f} KB {kind:6}  {compress!s:8}  {sent:>6,.0f} B {table:>6,.0f} B {wal:>6,.0f} B"
                    f"  {client:>5,.0f} µs {server:>5,.0f} µs"
                )


def measure(task: Any, jobs: list[Any]) -> tuple[float, ...]:
    """Enqueue the jobs one by one; return bytes of arguments, table and WAL, and microseconds of CPU, for each."""
    from django.db import connection

    from djqueue import stores
    from djqueue.tasks.new_job import new_job

    def ask(question: str, *values: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(question, values)
            return cursor.fetchone()[0]

    backend, place = ask("SELECT pg_backend_pid()"), ask("SELECT pg_current_wal_insert_lsn()")
    before, began = sum(processes.cpu_of({backend}).values()), time.process_time()
    for job in jobs:
        task.enqueue(job)
    client, server = time.process_time() - began, sum(processes.cpu_of({backend}).values()) - before
    sizes = [
        sum(len(new_job(task, (job,), {}, stores.store(task.backend).settings).args) for job in jobs),
        ask("SELECT pg_total_relation_size('djqueue_job')"),
        ask("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", place),
    ]
    return (*(float(size) / len(jobs) for size in sizes), client * 1e6 / len(jobs), server * 1e6 / len(jobs))


if __name__ == "__main__":
    main()
