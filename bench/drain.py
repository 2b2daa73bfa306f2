"""How many no-op jobs per second does a worker get through, durably and with the history kept?"""

from __future__ import annotations

import argparse
import statistics

from bench import helper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--async", action="store_true", dest="is_async")
    options = parser.parse_args()
    helper.setup()
    from bench import tasks

    ramps = []

    def measure() -> float:
        helper.empty()
        task = tasks.anoop if options.is_async else tasks.noop
        task.enqueue_many((((), {}) for _ in range(options.jobs)), batch_size=5000)
        helper.checkpoint()
        arguments = ["--concurrency", str(options.concurrency), "--processes", str(options.processes)]
        speed = options.jobs / helper.drain(options.jobs, *arguments)
        ramps.append(helper.ramp_up())
        return speed

    print(helper.describe())
    kind = "async" if options.is_async else "sync"
    print(
        f"drain of {options.jobs:,} {kind} no-op jobs, {options.processes} process(es), concurrency {options.concurrency}:"
        f" {helper.repeat(options.repeat, measure)} jobs/s"
    )
    print(f"the first 10,000 of them: {statistics.median(ramps):.0%} of the speed of the others")


if __name__ == "__main__":
    main()
