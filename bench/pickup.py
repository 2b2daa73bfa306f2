"""How long until a sleeping worker starts a job, counted from before the enqueue's commit?"""

from __future__ import annotations

import argparse
import random
import time

from bench import helper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    helper.setup()
    from bench import tasks
    from djqueue.models import FinishedJob

    print(helper.describe())
    with helper.worker("--processes", str(options.processes)):
        tasks.lateness.enqueue(time.time())
        helper.eventually(FinishedJob.objects.exists)
        FinishedJob.objects.all().delete()
        for _ in range(options.tries):
            # Long enough for the worker to be asleep, and not in step with its poll.
            time.sleep(random.uniform(0.1, 0.3))
            tasks.lateness.enqueue(time.time())
        helper.eventually(lambda: FinishedJob.objects.count() == options.tries)
    waits = [1000 * value for value in FinishedJob.objects.values_list("result", flat=True)]
    print(
        f"pickup by {options.processes} sleeping process(es), {options.tries} tries:"
        f" p50 {helper.percentile(waits, 0.5):.1f} ms, p99 {helper.percentile(waits, 0.99):.1f} ms, max {max(waits):.1f} ms"
    )


if __name__ == "__main__":
    main()
