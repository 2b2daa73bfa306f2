"""What does a worker cost that has nothing to do: queries, CPU, memory?"""

from __future__ import annotations

import argparse
import time

from bench import helper
from bench.harness import processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=10)
    options = parser.parse_args()
    helper.setup()
    from django.db import connection

    from bench import tasks
    from djqueue.models import FinishedJob

    print(helper.describe())
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    arguments = ("--processes", str(options.processes), "--concurrency", str(options.concurrency))
    with helper.worker(*arguments) as worker:
        tasks.noop.enqueue()
        helper.eventually(FinishedJob.objects.exists)
        time.sleep(5)  # until the worker has settled: leadership, sleep, the first rounds of its services
        pids = processes.tree(worker.pid)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_statements_reset()")
        before, began = processes.cpu_of(pids), time.monotonic()
        time.sleep(options.seconds)
        after, seconds = processes.cpu_of(pids), time.monotonic() - began
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT calls, query FROM pg_stat_statements JOIN pg_database ON dbid = pg_database.oid"
                " WHERE datname = current_database() AND query NOT LIKE '%%pg_stat_statements%%' ORDER BY calls DESC"
            )
            queries = cursor.fetchall()
        memory = {pid: processes.memory_of(pid) for pid in pids}

    for pid in sorted(pids):
        part = "supervisor" if pid == worker.pid else "child"
        cpu = 100 * (after.get(pid, 0) - before.get(pid, 0)) / seconds
        print(f"{part}: CPU {cpu:.2f} %, memory {memory[pid] / 2**20:,.0f} MiB resident")
    print(f"queries: {sum(calls for calls, _ in queries) / seconds:.2f} a second")
    for calls, query in queries[:12]:
        print(f"  {calls / seconds:6.2f} a second: {' '.join(query.split())[:110]}")


if __name__ == "__main__":
    main()
