"""How a worker process ends, whoever ends it: what it held is not lost, and what it started does not outlive it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from djqueue.jobs.states import JobState
from tests.backlog import ended, engine, jobs, states, stored
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import eventually, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


class TestExitInATask:
    @pytest.mark.parametrize("code", [0, 3, 70])
    def test_t65_a_task_that_ends_its_process_is_a_loss_whatever_the_exit_code_and_the_drain_goes_on(
        self, code: int
    ) -> None:
        ending = tasks.end_process.using(priority=10).enqueue(code)
        tasks.noop.enqueue_many(((), {}) for _ in range(20))

        with worker("--drain", "--concurrency", "1") as running:
            assert running.wait(40) == 0, (
                running.log
            )  # less than the minute after which a leader looks for ownerless claims

        assert states() == {"completed": 20, "discarded": 1}, running.log
        job = stored(ending)
        assert (job.state, job.attempt) == (JobState.DISCARDED, 2)
        assert [error["exception"] for error in job.errors] == ["djqueue.exceptions.WorkerLost"] * 2
        assert f"exit code {code}" in job.errors[0]["message"]
        # What was only claimed goes back unspent.
        assert {job.attempt for job in jobs(JobState.COMPLETED)} == {1}
        assert "worker.stop" in running.log
        assert not [one for one in engine().workers() if not one.is_dead]


class TestForks:
    @pytest.mark.parametrize("task", [tasks.fork, tasks.afork], ids=lambda task: task.name)
    def test_t66_a_fork_that_comes_back_from_its_task_ends_as_a_script_and_runs_no_job(self, task: Any) -> None:
        forks = {way: task.using(priority=10).enqueue(way) for way in ("return", "raise", "exit", "query")}
        tasks.record.enqueue_many(((str(number),), {}) for number in range(100))

        with worker("--drain", "--concurrency", "2", "-v", "0") as running:
            assert running.wait() == 0, running.log

        assert states() == {"completed": 104}, running.log
        # After an await a copy of the event loop has nothing to go on with.
        expected = dict.fromkeys(forks, 0) if task is tasks.afork else {"return": 0, "raise": 1, "exit": 7, "query": 0}
        assert {way: stored(result).result for way, result in forks.items()} == expected
        assert {job.attempt for job in jobs()} == {1}
        labels = Counter(Entry.objects.values_list("label", flat=True))
        assert {label: labels[label] for label in map(str, range(100))} == {str(number): 1 for number in range(100)}
        assert "ack.stale" not in running.log
        assert "OperationalError" not in running.log

    def test_t66_a_fork_in_a_thread_of_a_pool_ends_when_its_call_returns(self) -> None:
        forks = [tasks.fork_in_pools.enqueue(way) for way in ("return", "raise", "exit")]
        tasks.record.enqueue_many(((str(number),), {}) for number in range(50))

        with worker("--drain") as running:
            assert running.wait() == 0, running.log

        assert states() == {"completed": 53}, running.log
        assert [stored(result).result for result in forks] == [[0, 0, 0]] * 3
        assert Entry.objects.count() == 50

    @pytest.mark.parametrize("store", ["postgres"], indirect=True)
    def test_t66_a_fork_inside_of_a_transaction_writes_nothing_and_does_not_end_it(self) -> None:
        forks = {way: tasks.fork_in_transaction.enqueue(way) for way in ("return", "raise", "exit", "query")}

        with worker("--drain", "--concurrency", "1") as running:
            assert running.wait() == 0, running.log

        assert {way: stored(result).result for way, result in forks.items()} == {
            "return": 1,  # its next query was refused
            "raise": 1,
            "exit": 7,
            "query": 1,
        }
        assert Counter(Entry.objects.values_list("label", flat=True)) == {"before the fork": 4, "after the fork": 4}

    def test_t06_processes_that_a_task_starts_can_be_terminated_as_in_plain_python(self) -> None:
        result = tasks.start_and_terminate.enqueue()

        with worker("--drain") as running:
            assert running.wait() == 0, running.log

        assert stored(result).result == [-signal.SIGTERM, False, False], running.log


class TestLeftovers:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_t06_what_a_task_started_ends_with_its_worker_unless_it_has_a_session_of_its_own(
        self, number: signal.Signals
    ) -> None:
        result = tasks.leave_processes.enqueue()

        with worker() as running:
            eventually(ended, explain=lambda: running.log)
            *left, daemon = stored(result).result
            try:
                assert all(map(is_alive, [*left, daemon])), running.log
                [pid] = running.child_pids()
                os.kill(pid, number)
                eventually(lambda: not any(map(is_alive, left)), explain=lambda: running.log)
                assert is_alive(daemon)
            finally:
                os.kill(daemon, signal.SIGKILL)


class TestExitHooks:
    def test_t07_exit_hooks_and_buffered_records_survive_each_recycle_and_each_stop(self, tmp_path: Path) -> None:
        path = str(tmp_path / "end")
        tasks.remember_for_the_end.enqueue_many(((path,), {}) for _ in range(10))

        with worker("--max-jobs", "5", "--concurrency", "1") as running:
            eventually(lambda: ended() == 10, explain=lambda: running.log)
            tasks.remember_for_the_end.enqueue(path)
            eventually(lambda: ended() == 11, explain=lambda: running.log)
            running.stop()
            assert running.wait() == 0, running.log

        assert (tmp_path / "end.log").read_text().splitlines() == ["one record"] * 11, running.log
        assert (tmp_path / "end.exit").read_text().splitlines() == ["ended"] * 3

    @pytest.mark.parametrize("kind", ["hook", "thread"])
    def test_t07_a_hook_or_a_thread_that_never_ends_holds_a_worker_for_seconds_only(self, kind: str) -> None:
        tasks.hang_at_the_end.enqueue(kind)
        tasks.noop.enqueue()

        with worker("--drain") as running:
            assert running.wait(60) == 0, running.log

        assert states() == {"completed": 2}
        assert "worker.lost" not in running.log


def is_alive(pid: int) -> bool:
    """Whether this process runs; one that nobody has waited for has ended all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
