"""What does somebody's long transaction cost? Jobs pass through one worker with and without a snapshot held open.

The speed of the last tenth counts: dead entries that VACUUM may not remove have piled up by then.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack

from bench import helper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=10)
    options = parser.parse_args()
    helper.setup()
    from django.db import connection

    from bench import tasks
    from djqueue.engines.postgres.connection import connect

    def measure(is_held: bool) -> tuple[float, float]:
        """Return the jobs per second of the whole and of the last tenth."""
        helper.empty()
        tasks.noop.enqueue_many((((), {}) for _ in range(options.jobs)), batch_size=5000)
        helper.checkpoint()
        with ExitStack() as stack:
            if is_held:
                reader = stack.enter_context(connect("default", "report"))
                reader.autocommit = False
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                # The reader is one of those sessions that forget to end: ours would be ended by its time limit.
                reader.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                reader.execute("SELECT count(*) FROM djqueue_job")
            seconds = helper.drain(options.jobs, "--concurrency", str(options.concurrency))
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT extract(epoch FROM max(finished_at) - min(finished_at))::float8 FROM"
                " (SELECT finished_at FROM djqueue_finishedjob ORDER BY finished_at DESC LIMIT %s) AS last",
                [options.jobs // 10],
            )
            [last] = cursor.fetchone()
        return options.jobs / seconds, options.jobs / 10 / last

    print(helper.describe())
    runs: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(options.repeat):
        for is_held, values in runs.items():
            values.append(measure(is_held))
    (free, free_last), (held, held_last) = (
        [statistics.median(column) for column in zip(*values, strict=True)] for values in runs.values()
    )
    print(
        f"{options.jobs:,} no-op jobs: {free:,.0f} jobs/s, the last tenth {free_last:,.0f}; with a snapshot held open"
        f" {held:,.0f}, the last tenth {held_last:,.0f} ({100 * held_last / free_last:.0f} %; {time.strftime('%H:%M')})"
    )


if __name__ == "__main__":
    main()
