"""What is fetched ahead harms nobody: real workers, each with one or two slots, that know their jobs as short ones."""

from __future__ import annotations

import pytest
from django.db import connection

from djqueue.models import FinishedJob, Job
from djqueue.runtime.lanes import PREFETCH_SECONDS
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import WorkerProcess, eventually, worker

pytestmark = pytest.mark.django_db(transaction=True)

LONG = 60.0
"""Seconds that a long job would take. No test waits for its end."""


def warm_up(running: WorkerProcess) -> None:
    """Let the workers run so many short jobs that each would fetch hundreds ahead."""
    for _ in range(2):
        done = FinishedJob.objects.count()
        tasks.noop.enqueue_many(((), {}) for _ in range(1000))
        eventually(lambda done=done: FinishedJob.objects.count() == done + 1000, 30, lambda: running.log)  # type: ignore[misc]


def test_one_long_job_holds_no_short_ones_hostage() -> None:
    with worker("--processes", "2", "--concurrency", "1") as running:
        warm_up(running)

        tasks.nap.enqueue("long", LONG)
        tasks.record.enqueue_many(((f"short {number}",), {}) for number in range(50))
        shorts = Entry.objects.filter(label__startswith="short")
        eventually(lambda: shorts.count() == 50, 30, lambda: running.log)
        eventually(lambda: Job.objects.count() == 1, 30, lambda: running.log)

        long = Entry.objects.get(label="long")
        [idle] = set(shorts.values_list("pid", flat=True)) - {long.pid}
        # Those that the other one ran came before the long job: it had fetched them with it.
        assert shorts.filter(pid=idle).count() > 0
        assert Job.objects.get().state == "executing"
        # What had been fetched behind the long job went back with its attempt.
        assert set(FinishedJob.objects.values_list("attempt", flat=True)) == {1}


def test_long_jobs_among_short_ones_begin_on_workers_of_their_own() -> None:
    # A third process for the short jobs: with two, both could be busy with the long ones before the last short one has begun.
    with worker("--processes", "3", "--concurrency", "1") as running:
        warm_up(running)

        for _ in range(2):
            tasks.nap.enqueue_many((("short", 0.001), {}) for _ in range(20))
            tasks.nap.enqueue("long", LONG)
        eventually(lambda: Entry.objects.filter(label="short").count() == 40, 30, lambda: running.log)
        longs = Entry.objects.filter(label="long").values_list("pid", flat=True)
        eventually(lambda: len(longs.all()) == 2, 30, lambda: running.log)

        assert len(set(longs.all())) == 2
        assert Job.objects.filter(state="executing").count() == 2


def test_no_more_is_claimed_than_slots_and_fifty_milliseconds_of_work() -> None:
    slots, seconds = 2, 0.02
    most = slots + int(slots * PREFETCH_SECONDS / seconds)
    tasks.end_after.enqueue_many(((seconds,), {}) for _ in range(150))
    claimed = []

    with worker("--concurrency", str(slots), "--drain") as running, connection.cursor() as cursor:
        while running.process.poll() is None:
            # What has ended and waits for its ack is no prefetch.
            cursor.execute(
                "SELECT count(*) FROM djqueue_job AS job WHERE state = 'executing'"
                " AND NOT EXISTS (SELECT 1 FROM ledger_entry WHERE label = 'ended ' || job.id)"
            )
            claimed.append(cursor.fetchone()[0])

        assert running.wait() == 0, running.log
    assert FinishedJob.objects.count() == 150
    assert slots <= max(claimed) <= most


def test_t47_a_worker_full_of_long_jobs_leaves_the_next_ones_to_an_idle_one() -> None:
    with worker("--concurrency", "10") as full:
        warm_up(full)
        tasks.nap.enqueue_many((("long", LONG), {}) for _ in range(10))
        eventually(lambda: Entry.objects.filter(label="long").count() == 10, 30, lambda: full.log)
        # What it had fetched ahead, knowing its jobs as short ones, has gone back by now.
        with worker("--concurrency", "10") as idle:
            eventually(lambda: len(idle.child_pids()) == 2, 30, lambda: idle.log)

            for number in range(30):
                tasks.record.enqueue(f"short {number}")
                label = f"short {number}"
                eventually(lambda label=label: Entry.objects.filter(label=label).exists(), 30, lambda: full.log)  # type: ignore[misc]
            eventually(lambda: Job.objects.count() == 10, 30, lambda: idle.log)

        # Whoever fetches without room hands back, and each claim counts.
        claims = FinishedJob.objects.filter(task=tasks.record.module_path).values_list("claim", flat=True)
        assert list(claims) == [1] * 30
