"""How late does an otherwise idle worker start jobs that were enqueued for a certain time?"""

from __future__ import annotations

import argparse
import random
import time
from contextlib import nullcontext
from datetime import UTC, datetime

from bench import helper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20, help="over which they are spread")
    parser.add_argument("--soon", action="store_true", help="enqueue each job 100 to 900 ms before it is due")
    options = parser.parse_args()
    helper.setup()
    from django.db import transaction

    from bench import tasks
    from djqueue.models import FinishedJob

    print(helper.describe())
    with helper.worker():
        tasks.lateness.enqueue(time.time())
        helper.eventually(FinishedJob.objects.exists)
        FinishedJob.objects.all().delete()
        first = time.time() + 5
        due = sorted(first + random.uniform(0, options.seconds) for _ in range(options.jobs))
        with nullcontext() if options.soon else transaction.atomic():
            for at in due:
                if options.soon:
                    time.sleep(max(0.0, at - random.uniform(0.1, 0.9) - time.time()))
                    at = max(at, time.time() + 0.1)  # where commits do not keep up
                tasks.lateness.using(run_after=datetime.fromtimestamp(at, UTC)).enqueue(at)
        assert options.soon or time.time() < first, "The first was due before all were enqueued."
        helper.eventually(lambda: FinishedJob.objects.count() == options.jobs, options.seconds + 60)
    late = [1000 * value for value in FinishedJob.objects.values_list("result", flat=True)]
    print(
        f"{options.jobs} jobs due over {options.seconds:g} s{', each enqueued shortly before' if options.soon else ''}: lateness"
        f" p50 {helper.percentile(late, 0.5):.1f} ms, p99 {helper.percentile(late, 0.99):.1f} ms, max {max(late):.1f} ms"
    )


if __name__ == "__main__":
    main()
