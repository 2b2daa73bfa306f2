"""How fast does ``enqueue_many`` store a million jobs, and how much memory does it take?"""

from __future__ import annotations

import argparse
import resource
import time

from bench import helper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=5000)
    parser.add_argument("--unique", action="store_true", help="a unique key each: INSERT instead of COPY")
    parser.add_argument("--relaxed", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    helper.setup()
    from bench import tasks
    from djqueue.models import Job

    print(helper.describe())
    task = tasks.lateness.using(
        unique=True if options.unique else None, durability="relaxed" if options.relaxed else None
    )
    rates = []
    resident = peak()
    for _ in range(options.repeat):
        helper.empty()
        helper.checkpoint()
        before, began = helper.Costs.now(), time.perf_counter()
        task.enqueue_many((((number,), {}) for number in range(options.jobs)), batch_size=options.batch_size)
        rates.append(options.jobs / (time.perf_counter() - began))
        cost = helper.Costs.now().since(before, options.jobs)
        assert Job.objects.count() == options.jobs
    print(
        f"enqueue_many of {options.jobs:,} jobs, {options.batch_size:,} a batch: {helper.spread(rates)} jobs/s; each {cost}"
    )
    print(f"memory: {resident / 2**20:,.0f} MiB resident before, {peak() / 2**20:,.0f} MiB at the most")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
