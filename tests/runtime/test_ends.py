"""How a worker process ends, whoever ends it: what it held is not lost, and what it started does not outlive it."""

from __future__ import annotations

import pytest

from djqueue.states import JobState
from tests.backlog import engine, jobs, states, stored
from tests.ledger import tasks
from tests.processes import worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


class TestExitInATask:
    @pytest.mark.parametrize("code", [0, 3, 70])
    def test_t65_a_task_that_ends_its_process_is_a_loss_whatever_the_exit_code_and_the_drain_goes_on(
        self, code: int
    ) -> None:
        ending = tasks.end_process.using(priority=10).enqueue(code)
        tasks.noop.enqueue_many(((), {}) for _ in range(20))

        with worker("--drain", "--concurrency", "1") as running:
            assert running.wait(40) == 0, running.log  # less than the minute after which a leader looks for ownerless claims

        assert states() == {"completed": 20, "discarded": 1}, running.log
        job = stored(ending)
        assert (job.state, job.attempt) == (JobState.DISCARDED, 2)
        assert [error["exception"] for error in job.errors] == ["djqueue.exceptions.WorkerLost"] * 2
        assert f"exit code {code}" in job.errors[0]["message"]
        # What was only claimed goes back unspent.
        assert {job.attempt for job in jobs(JobState.COMPLETED)} == {1}
        assert "worker.stop" in running.log
        assert not [one for one in engine().workers() if not one.is_dead]
