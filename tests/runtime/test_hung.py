"""A worker process that stands still while its supervisor sends heartbeats for it."""

from __future__ import annotations

import os
import signal

import pytest

from tests.backlog import states
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import environment, eventually, worker

HASTE = {"DJANGO_SETTINGS_MODULE": "tests.faults.settings", "DJQUEUE_TEST_HASTE": "1"}


@pytest.mark.django_db(transaction=True)
def test_a_stopped_worker_is_reported_with_its_jobs_and_again_when_it_runs() -> None:
    job = tasks.nap.enqueue("long", 5)

    with worker(env={**environment(), **HASTE}) as running:
        eventually(Entry.objects.exists, explain=lambda: running.log)
        [pid] = running.child_pids()
        os.kill(pid, signal.SIGSTOP)
        running.wait_for_log("worker.hung")
        os.kill(pid, signal.SIGCONT)
        running.wait_for_log("worker.moves")
        eventually(lambda: states() == {"completed": 1}, explain=lambda: running.log)

        [line] = [line for line in running.log.splitlines() if "worker.hung" in line]
        assert f"pid={pid}" in line
        assert f"jobs=[{job.id}]" in line


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_only_waits_or_is_busy_is_not_reported() -> None:
    with worker(env={**environment(), **HASTE}) as running:
        running.wait_for_log("worker.start")
        tasks.nap.enqueue("longer than the limit", 4)
        eventually(lambda: states() == {"completed": 1}, explain=lambda: running.log)

    assert "worker.hung" not in running.log
