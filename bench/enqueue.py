"""How many jobs per second does an application add, one by one and from ten threads, and what does each of them cost?"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial

from asgiref.sync import sync_to_async

from bench import helper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000, help="per measurement")
    parser.add_argument("--threads", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    helper.setup()
    from bench import tasks
    from djqueue.models import Job

    print(helper.describe())
    relaxed = tasks.noop.using(durability="relaxed")
    ways: dict[str, tuple[int, Callable[[int], None]]] = {
        "one by one": (1, partial(add, tasks.noop)),
        "one by one, relaxed": (1, partial(add, relaxed)),
        "one by one, a unique key each": (1, partial(add_unique, tasks.lateness.using(unique=True))),
        "one by one, awaited": (1, partial(await_add, tasks.noop)),
        f"from {options.threads} threads": (options.threads, partial(add, tasks.noop)),
        f"from {options.threads} threads, relaxed": (options.threads, partial(add, relaxed)),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    costs: dict[str, str] = {}
    # Way after way within a repeat: machines have fast and slow phases.
    for _ in range(options.repeat):
        for way, (threads, work) in ways.items():
            helper.empty()
            helper.checkpoint()
            each = options.jobs // threads
            seconds, costs[way] = measure(threads, each, work)
            assert Job.objects.count() == threads * (each + WARM_UP), f"{way}: jobs are missing"
            rates[way].append(threads * each / seconds)
    for way in ways:
        print(f"{way}: {helper.spread(rates[way])} jobs/s; each {costs[way]}")


WARM_UP = 20


def measure(threads: int, each: int, work: Callable[[int], None]) -> tuple[float, str]:
    """Let each thread add so many jobs on a connection of its own; return the seconds, and what a job cost."""
    from django.db import connections

    warm, start, done, told, leave = (threading.Barrier(threads + 1) for _ in range(5))

    def run() -> None:
        try:
            work(WARM_UP)
            tell_statistics()
            warm.wait()
            start.wait()
            work(each)
            done.wait()
            tell_statistics()
            told.wait()
            leave.wait()  # the CPU of a session can be read while it is open
        finally:
            connections.close_all()

    for _ in range(threads):
        threading.Thread(target=run, daemon=True).start()
    warm.wait()
    before = helper.Costs.now()
    start.wait()
    began = time.perf_counter()
    done.wait()
    seconds = time.perf_counter() - began
    told.wait()
    cost = helper.Costs.now().since(before, threads * each)
    leave.wait()
    return seconds, cost


def tell_statistics() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        # A session tells of its commits now and then only.
        cursor.execute("SELECT pg_stat_force_next_flush()")


def add(task: object, count: int) -> None:
    enqueue = task.enqueue  # type: ignore[attr-defined]
    for _ in range(count):
        enqueue()


def add_unique(task: object, count: int) -> None:
    enqueue = task.enqueue  # type: ignore[attr-defined]
    for _ in range(count):
        enqueue(time.perf_counter())


def await_add(task: object, count: int) -> None:
    async def work() -> None:
        aenqueue = task.aenqueue  # type: ignore[attr-defined]
        for _ in range(count):
            await aenqueue()
        await sync_to_async(tell_statistics)()  # their connection is that of the thread for sync work

    asyncio.run(work())


if __name__ == "__main__":
    main()
