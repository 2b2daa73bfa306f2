"""Does pruning a large history slow down the jobs that flow meanwhile, and does anybody wait for its locks?

Runs are interleaved: with and without a history of old jobs to delete, on the same table sizes.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

from bench import helper

_HISTORY = """
    INSERT INTO djqueue_finishedjob (id, state, queue, task, args, finished_at, started_at, ready_at, attempt)
    SELECT nextval('djqueue_job_id_seq'), 'completed', 'default', 'bench.tasks.noop', '[]', at, at, at, 1
    FROM (SELECT now() - %s::interval + n * interval '1 ms' AS at FROM generate_series(1, %s) AS n) AS t
"""
_WAITS = """
    SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - l.waitstart)), 0)::float8
    FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database WHERE datname = current_database() AND NOT granted
"""


class Watch(threading.Thread):
    """Sample who waits for a lock, and for how long."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self.samples = 0
        self.done = threading.Event()

    def run(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            while not self.done.wait(0.01):
                cursor.execute(_WAITS)
                self.longest = max(self.longest, cursor.fetchone()[0])
                self.samples += 1
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    helper.setup()
    from django.db import connection

    from bench import tasks

    waits: list[float] = []
    deleted: list[int] = []

    def measure(age: str) -> float:
        helper.empty()
        with connection.cursor() as cursor:
            cursor.execute(_HISTORY, [age, options.history])
            cursor.execute("VACUUM ANALYZE djqueue_finishedjob")
        tasks.noop.enqueue_many((((), {}) for _ in range(options.jobs)), batch_size=5000)
        helper.checkpoint()
        watch = Watch()
        watch.start()
        with helper.worker("--drain") as process:
            process.wait(600)
        watch.done.set()
        watch.join()
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FILTER (WHERE finished_at > now() - interval '1 hour'), count(*),"
                " extract(epoch FROM max(finished_at) - min(started_at) FILTER (WHERE finished_at > now() - interval '1 hour'))::float8"
                " FROM djqueue_finishedjob"
            )
            new, every, seconds = cursor.fetchone()
        assert new == options.jobs, f"{new} of {options.jobs} jobs completed"
        if age != "2 hours":
            waits.append(watch.longest)
            deleted.append(options.history + new - every)
        return options.jobs / float(seconds)

    print(helper.describe())
    rates: dict[str, list[float]] = {"2 hours": [], "3 days": []}
    for _ in range(options.repeat):
        for age, values in rates.items():
            values.append(measure(age))
    without, pruning = (statistics.median(values) for values in rates.values())
    print(
        f"{options.jobs:,} no-op jobs beside a history of {options.history:,}: {without:,.0f} jobs/s when all of it is kept,"
        f" {pruning:,.0f} while it is pruned ({100 * pruning / without:.0f} %; {min(deleted):,}–{max(deleted):,} deleted meanwhile,"
        f" {time.strftime('%H:%M')}), longest wait for a lock {1000 * max(waits):.0f} ms"
    )


if __name__ == "__main__":
    main()
