"""Control of real workers: what they obey, how soon, and after a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from djqueue import api
from djqueue.compat import TaskResult
from tests.backlog import states, stored
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import eventually, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]
each_way = pytest.mark.parametrize(
    ("store", "env"),
    [("postgres", {}), ("postgres", {"DJQUEUE_LISTEN": "0"}), ("valkey", {})],
    ids=["postgres-woken", "postgres-polling", "valkey"],
    indirect=["store"],
)
POLL_SECONDS = 1.0
SLACK_SECONDS = 3.0
"""What a shared machine may add to a second."""


def record(label: str) -> TaskResult:
    return tasks.record.enqueue(label)


def has_run(label: str) -> bool:
    return Entry.objects.filter(label=label).exists()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds + SLACK_SECONDS


@each_way
def test_b97_a_pause_holds_within_a_poll_and_after_a_restart(env: dict[str, str]) -> None:
    with worker(env=env) as running:
        record("before")
        eventually(lambda: has_run("before"))

        api.pause("default", by="anna", reason="No paper.")
        record("paused")
        time.sleep(1.5)  # longer than a poll: it must not run
        assert not has_run("paused")

        running.stop()
        assert running.wait() == 0

    with worker(env=env) as running:
        running.wait_for_log("worker.start")
        time.sleep(1.5)  # longer than a poll: it must not run
        assert states() == {"completed": 1, "available": 1}

        api.resume("default")
        with within(POLL_SECONDS):
            eventually(lambda: has_run("paused"))


def test_a_resume_wakes_a_worker_that_sleeps() -> None:
    """Not by the poll, which is far away here."""
    with worker(env={"DJQUEUE_POLL_INTERVAL": "60"}) as running:
        running.wait_for_log("worker.start")
        api.pause("default")
        record("paused")
        time.sleep(0.5)  # it wakes, finds nothing and sleeps again

        api.resume("default")

        with within(0.5):
            eventually(lambda: has_run("paused"))


def test_a_job_retried_into_a_paused_queue_runs_after_the_resume() -> None:
    result = record("retried")
    api.discard(result)
    with worker() as running:
        running.wait_for_log("worker.start")
        api.pause("default")
        assert api.retry(result).is_done
        time.sleep(1.5)  # longer than a poll: it must not run
        assert stored(result).state == "available"

        api.resume("default")
        eventually(lambda: has_run("retried"))


def test_a_queue_beside_a_paused_one_is_served() -> None:
    api.pause("mail")
    tasks.record.using(queue_name="mail").enqueue("paused")
    with worker("--queues", "mail,default"):
        record("other")
        eventually(lambda: has_run("other"))

    assert not has_run("paused")


@each_way
def test_b97_cancelled_jobs_that_wait_never_run(env: dict[str, str]) -> None:
    api.pause("default")
    results = [record(f"cancelled {n}") for n in range(20)]
    with worker(env=env) as running:
        running.wait_for_log("worker.start")
        api.cancel(results[:10])
        api.resume("default")
        eventually(lambda: states() == {"cancelled": 10, "completed": 10})

    assert Entry.objects.count() == 10


@each_way
def test_t41_a_job_that_was_cancelled_while_it_ran_is_told_without_an_error_and_a_traceback(
    env: dict[str, str],
) -> None:
    result = tasks.anap.enqueue("long", 600)
    with worker(env=env) as running:
        eventually(lambda: states() == {"executing": 1})
        api.cancel(result, by="anna", reason="Not needed.")
        running.wait_for_log("state=cancelled")
        eventually(lambda: states() == {"cancelled": 1})

        [line] = [line for line in running.log.splitlines() if "job.stop" in line]
        assert " INFO " in line
        assert "Traceback" not in running.log
    [error] = stored(result).errors
    assert (error["message"], error["traceback"]) == ("Not needed.", "")


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_t60_a_cancel_without_wake_ups_is_heard_long_before_the_poll() -> None:
    result = tasks.wait_for_cancel.enqueue("to be cancelled")
    with worker(env={"DJQUEUE_POLL_INTERVAL": "30", "DJQUEUE_LISTEN": "0"}) as running:
        eventually(lambda: has_run("to be cancelled"), 60, lambda: running.log)
        asked = time.monotonic()
        result.cancel("not needed")
        eventually(lambda: states() == {"cancelled": 1}, explain=lambda: running.log)

    assert time.monotonic() - asked < 15, running.log  # two seconds, and what a loaded machine adds
