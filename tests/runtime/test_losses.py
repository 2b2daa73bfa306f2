"""What the log says about a worker that is lost or refused: the true reason, because an operator acts upon it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from djqueue.jobs.silence import SILENT_SECONDS
from djqueue.models import Worker
from djqueue.runtime import losses
from tests.processes import worker


def test_a_worker_that_was_marked_as_dead_is_told_that_its_jobs_were_rescued() -> None:
    assert "so its jobs were rescued" in losses.refusal(is_marked=True, silent_seconds=12)


def test_a_row_that_vanished_between_two_heartbeats_means_that_the_store_has_lost_it() -> None:
    assert "emptied" in losses.refusal(is_marked=False, silent_seconds=2)


@pytest.mark.django_db(transaction=True)
def test_a_supervisor_that_was_away_for_long_does_not_blame_the_store() -> None:
    with worker() as running:
        running.wait_for_log("worker.start")
        running.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(SILENT_SECONDS + 1)  # the fault lasts that long
            Worker.objects.all().delete()  # as the leader does after it has rescued the jobs
        finally:
            os.kill(running.process.pid, signal.SIGCONT)
        running.wait_for_log("worker.declared_dead")

        assert "sent no heartbeats for 1" in running.log
        assert "emptied" not in running.log
        running.wait_for_log("worker.start", count=2)
