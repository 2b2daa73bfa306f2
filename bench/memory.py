"""Does the memory of a worker process grow with the jobs that it has run? Wanted: flat once it is warm."""

from __future__ import annotations

import argparse
import time

from bench import helper
from bench.harness import processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--step", type=int, default=10_000, help="jobs between two looks")
    parser.add_argument(
        "--warm-up", type=int, default=5, help="looks that do not count: pools, caches and threads fill"
    )
    parser.add_argument("--concurrency", type=int, default=20)
    options = parser.parse_args()
    helper.setup()
    from django.db import connection

    from bench import tasks
    from djqueue.models import Worker

    def enqueue(count: int) -> None:
        """A quarter each: sync with a timeout of an hour, async with one and a payload, failing for good, failing once."""
        quarter = count // 4
        load = "x" * 2_000
        tasks.carry.enqueue_many((((load,), {}) for _ in range(quarter)), batch_size=5_000)
        tasks.acarry.enqueue_many((((load,), {}) for _ in range(quarter)), batch_size=5_000)
        tasks.fail_at_once.enqueue_many((((number,), {}) for number in range(quarter)), batch_size=5_000)
        tasks.fail_once.enqueue_many((((), {}) for _ in range(count - 3 * quarter)), batch_size=5_000)

    def has_live() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT EXISTS (SELECT FROM djqueue_job)")
            return bool(cursor.fetchone()[0])

    print(helper.describe())
    print(f"{'jobs':>10} {'MiB':>8} {'seconds':>8}")
    sizes: list[float] = []
    with helper.worker("--concurrency", str(options.concurrency), log=False):
        helper.eventually(Worker.objects.exists)
        [pid] = Worker.objects.values_list("pid", flat=True)
        for done in range(options.step, options.jobs + 1, options.step):
            started = time.monotonic()
            enqueue(options.step)
            helper.eventually(lambda: not has_live(), 600)
            sizes.append(processes.memory_of(pid) / 2**20)
            print(f"{done:>10,} {sizes[-1]:>8.1f} {time.monotonic() - started:>8.1f}", flush=True)
        assert [pid] == list(Worker.objects.values_list("pid", flat=True)), "The worker process was replaced."
    warm = sizes[min(options.warm_up, len(sizes)) - 1]
    jobs = options.jobs - options.step * options.warm_up
    print(
        f"growth after the warm-up: {sizes[-1] - warm:+.1f} MiB over {max(0, jobs):,} jobs (peak {max(sizes) - warm:+.1f})"
    )


if __name__ == "__main__":
    main()
