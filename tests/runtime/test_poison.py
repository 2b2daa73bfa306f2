"""What an application does to a worker; the numbers are those of the fault table."""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connections, transaction

from djqueue.models import FinishedJob, Job
from tests.backlog import states
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import drain, eventually, worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "pool",
    [
        "",
        pytest.param("1", marks=pytest.mark.skipif(not find_spec("psycopg_pool"), reason="needs psycopg_pool")),
    ],
)
def test_b58_connections_from_before_the_start_are_shared_with_no_worker(pool: str) -> None:
    tasks.record.enqueue_many(((str(number),), {}) for number in range(400))

    env = {"DJANGO_SETTINGS_MODULE": "tests.faults.settings", "DJQUEUE_TEST_POOL": pool}
    with worker("--processes", "4", "--concurrency", "4", "--drain", env=env) as running:
        assert running.wait(90) == 0, running.log

    assert states() == {"completed": 400}
    assert sorted(FinishedJob.objects.values_list("result", flat=True)) == sorted(map(str, range(400)))
    assert Entry.objects.count() == 400
    assert "state=retryable" not in running.log


def test_b73_names_that_are_no_tasks_are_parked_and_others_go_on() -> None:
    names = [
        "os.system",
        "tests.nowhere.job",
        "antigravity.open",
        "tests.ledger.tasks.write",
        "sys.exit",
        "tests.ledger",
    ]
    bad = [int(tasks.noop.enqueue().id) for _ in names]
    for id, name in zip(bad, names, strict=True):
        Job.objects.filter(pk=id).update(task=name, args=["true"])
    good = tasks.record.enqueue("good")

    log = drain()

    good.refresh()
    assert good.return_value == "good"
    assert Entry.objects.count() == 1
    for job in Job.objects.all():
        assert (job.state, job.attempt) == ("scheduled", 0)
        assert "parked" in job.meta
    assert Job.objects.count() == len(names)
    assert "worker.lost" not in log


def test_b82_async_tasks_that_swallow_or_raise_a_cancellation_disturb_no_sibling() -> None:
    siblings = [tasks.anap.enqueue(f"sibling {number}", 3) for number in range(3)]
    swallowing = tasks.swallow_cancellation.enqueue()
    raising = tasks.araise_odd.enqueue("CancelledError")

    with worker() as running:
        eventually(lambda: FinishedJob.objects.count() == 5, 40, lambda: running.log)

    for result in siblings:
        result.refresh()
        assert (result.status, result.attempts) == ("SUCCESSFUL", 1)
    raising.refresh()
    swallowing.refresh()
    assert raising.status == "FAILED"
    assert swallowing.is_finished


class TestB85:
    def test_b85_a_job_is_seen_after_the_commit_and_its_transaction_with_it(self) -> None:
        with worker() as running:
            running.wait_for_log("worker.start")
            with transaction.atomic():
                kept = tasks.group_exists.enqueue(Group.objects.create(name="outer").pk)
                try:
                    with transaction.atomic():
                        lost = tasks.group_exists.enqueue(Group.objects.create(name="inner").pk)
                        raise ValueError
                except ValueError:
                    pass
                time.sleep(2)  # a worker that saw it before the commit would not find the group

            eventually(lambda: FinishedJob.objects.count() == 1, explain=lambda: running.log)
            time.sleep(1.5)  # longer than a poll: the other one would have been found

        kept.refresh()
        assert kept.return_value is True
        assert not Job.objects.exists()
        assert FinishedJob.objects.filter(pk=lost.id).count() == 0

    def test_b85_an_async_enqueue_outside_of_a_transaction_is_seen_at_once(self) -> None:
        async def enqueue() -> Any:
            result = await tasks.arecord.aenqueue("async")
            # In the thread that made it; a session must not outlive its test.
            await sync_to_async(connections.close_all)()
            return result

        with worker() as running:
            running.wait_for_log("worker.start")
            result = asyncio.run(enqueue())
            eventually(lambda: FinishedJob.objects.count() == 1, explain=lambda: running.log)

        result.refresh()
        assert result.return_value == "async"
