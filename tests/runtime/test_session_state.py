"""In what state a job finds Django's connections, and leaves them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from djqueue import compat
from djqueue.jobs.states import FINAL_STATES, JobState
from tests.ledger import sessions, tasks
from tests.ledger.models import Entry
from tests.processes import eventually, worker
from tests.runtime.test_executor import Bench

pytestmark = pytest.mark.django_db(transaction=True)


def labels() -> list[str]:
    return sorted(Entry.objects.values_list("label", flat=True))


def outcome(result: Any) -> tuple[str, str]:
    """Return a job's state and the class of its error."""
    result.refresh()
    return str(result.job.state), result.errors[-1].exception_class_path.rpartition(".")[2] if result.errors else ""


def finish(*results: Any) -> str:
    """Run jobs, one after the other, to the end of all; return the log."""
    with worker("--concurrency", "1") as running:
        eventually(lambda: all(outcome(result)[0] in FINAL_STATES for result in results), 60, lambda: running.log)
        running.stop()
        assert running.wait() == 0, running.log
    return running.log


@pytest.mark.usefixtures("store")
class TestOpenTransactions:
    @pytest.mark.parametrize(
        "task", [sessions.run_and_write, sessions.arun_and_write, sessions.lent_run_and_write], ids=lambda t: t.name
    )
    def test_t67_a_job_that_leaves_a_raw_transaction_open_fails_alone(self, task: Any) -> None:
        bad = task.enqueue("BEGIN", "never committed")
        good = [tasks.record.enqueue(f"good {number}") for number in range(5)]

        log = finish(bad, *good)

        assert outcome(bad) == ("discarded", "TransactionManagementError"), log
        assert [outcome(result) for result in good] == [("completed", "")] * 5
        assert labels() == [f"good {number}" for number in range(5)]

    @pytest.mark.parametrize("is_closed", [False, True])
    def test_a_job_that_leaves_an_atomic_block_open_fails_alone(self, is_closed: bool) -> None:
        bad = sessions.leave_atomic_open.enqueue("never committed", is_closed)
        good = [sessions.write_durably.enqueue(f"good {number}") for number in range(3)]

        log = finish(bad, *good)

        assert outcome(bad) == ("discarded", "TransactionManagementError"), log
        assert [outcome(result) for result in good] == [("completed", "")] * 3, log
        assert labels() == [f"good {number}" for number in range(3)]

    def test_a_job_that_leaves_a_transaction_open_in_an_event_loop_of_its_own_fails_alone(self) -> None:
        bad = sessions.own_loop_run_and_write.enqueue("BEGIN", "never committed")
        good = [sessions.write_in_own_loop.enqueue(f"good {number}") for number in range(3)]

        log = finish(bad, *good)

        assert outcome(bad) == ("discarded", "TransactionManagementError"), log
        assert [outcome(result) for result in good] == [("completed", "")] * 3
        assert labels() == [f"good {number}" for number in range(3)]

    def test_t67_a_transaction_that_a_job_ends_itself_is_its_own(self) -> None:
        result = sessions.run.enqueue(["BEGIN", "SELECT 1", "COMMIT"])

        finish(result)

        assert outcome(result) == ("completed", "")

    def test_t67_autocommit_that_a_job_turned_off_without_a_commit_fails_it(self) -> None:
        result = tasks.leave_a_transaction_open.using(max_attempts=1).enqueue()
        after = tasks.record.enqueue("committed")

        finish(result, after)

        assert outcome(result) == ("discarded", "TransactionManagementError")
        assert outcome(after) == ("completed", "")
        assert labels() == ["committed"]


class TestReceivers:
    @pytest.mark.parametrize(
        ("task", "args"),
        [
            (sessions.run_and_write, ["BEGIN", "lost"]),
            (sessions.run_and_write, ["BEGIN; SELECT 1/0", "lost"]),
            (sessions.arun_and_write, ["BEGIN", "lost"]),
            (sessions.leave_atomic_open, ["lost", False]),
            (sessions.leave_atomic_open, ["lost", True]),
            (tasks.leave_a_transaction_open, []),
        ],
        ids=["raw", "raw, failed", "raw, async", "atomic", "atomic, closed", "autocommit off"],
    )
    def test_what_they_write_after_a_failed_job_is_stored(self, task: Any, args: list[Any]) -> None:
        def write(task_result: Any, **kwargs: Any) -> None:
            sessions.write(f"receiver of {task_result.status}")

        bench = Bench(1)
        compat.task_finished.connect(write)
        try:
            bench.run((task, args), max_attempts=1)
        finally:
            compat.task_finished.disconnect(write)

        assert bench.acks.put_back == [(0, JobState.DISCARDED, True)]
        assert labels() == ["receiver of FAILED"]

    @pytest.mark.parametrize("task", [sessions.run_and_write, sessions.arun_and_write], ids=["sync", "async"])
    def test_a_transaction_that_a_receiver_of_task_started_leaves_open_is_not_the_jobs(
        self, task: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(**kwargs: Any) -> None:
            sessions.execute("BEGIN")
            sessions.write("receiver")
            raise ValueError("after BEGIN")

        bench = Bench(1)
        compat.task_started.connect(fail)
        try:
            bench.run((task, ["SELECT 1", "job"]), max_attempts=1)
        finally:
            compat.task_started.disconnect(fail)

        assert bench.acks.put_back == [(0, JobState.COMPLETED, True)]
        assert labels() == ["job"]
        assert "A receiver of task_started left a transaction open on the database 'default'." in caplog.text


class TestTransactional:
    @pytest.mark.parametrize(
        ("statements", "after", "kept"),
        [
            (["ROLLBACK"], "", []),
            (["ROLLBACK"], "after", []),
            (["COMMIT"], "", ["before"]),
            (["COMMIT"], "after", ["before"]),
            (["ROLLBACK; BEGIN"], "after", []),
            (["COMMIT", "BEGIN"], "", ["before"]),
            (["SAVEPOINT own", "ROLLBACK TO SAVEPOINT djqueue"], "", None),
        ],
    )
    def test_t67_a_transactional_job_whose_transaction_was_ended_is_not_completed(
        self, statements: list[str], after: str, kept: list[str] | None
    ) -> None:
        result = sessions.write_and_run.enqueue("before", statements, after)
        good = tasks.write_once.enqueue("good", "return")

        finish(result, good)

        if kept is None:  # it rolled its own work back, inside of the transaction: that is its right
            assert outcome(result) == ("completed", "")
            assert labels() == ["good"]
            return
        assert outcome(result) == ("discarded", "TransactionManagementError")
        assert labels() == sorted([*kept, "good"])
        assert outcome(good) == ("completed", "")

    def test_a_transactional_job_that_leaves_an_inner_atomic_block_open_fails_alone(self) -> None:
        bad = sessions.leave_atomic_open_in_transaction.enqueue("never committed")
        good = tasks.write_once.enqueue("good", "return")

        log = finish(bad, good)

        assert outcome(bad) == ("discarded", "TransactionManagementError"), log
        assert outcome(good) == ("completed", "")
        assert labels() == ["good"]

    def test_a_transactional_job_that_deletes_its_own_row_fails_and_frees_its_slot(self) -> None:
        bad = sessions.delete_own_job.enqueue("rolled back")
        good = tasks.write_once.enqueue("good", "return")

        log = finish(bad, good)

        assert outcome(bad) == ("discarded", "TransactionManagementError"), log
        assert outcome(good) == ("completed", "")
        assert f"job.stop job={bad.id}" in log
        assert labels() == ["good"]


CLEAN = {"is_self": True, "counts": [0, 0, 0, 0]}


@pytest.mark.usefixtures("store")
class TestBetweenJobs:
    """With ``CONN_MAX_AGE = 0`` (the suite's settings) each job finds what a request would: a new session."""

    def test_t02_nothing_that_a_job_does_to_its_session_reaches_the_next_job(self) -> None:
        first = sessions.inspect_session.enqueue()
        dirty = sessions.make_dirty.enqueue()
        following = [sessions.inspect_session.enqueue() for _ in range(3)]

        log = finish(first, dirty, *following)

        assert outcome(dirty) == ("completed", "")
        assert outcome(first) == ("completed", "")
        for result in following:
            assert outcome(result) == ("completed", ""), log
            assert {key: result.return_value[key] for key in CLEAN} == CLEAN
            assert result.return_value["settings"] == first.return_value["settings"]

    def test_t02_a_session_that_the_server_ended_between_two_jobs_costs_no_job(self) -> None:
        with worker("--concurrency", "1") as running:
            running.wait_for_log("worker.start")
            for number in range(6):
                sessions.backend_after.enqueue(0.05)
                sessions.backend_after.enqueue(0.05)
                result = tasks.record.enqueue(str(number))
                eventually(lambda result=result: outcome(result)[0] == "completed", explain=lambda: running.log)
                with connection.cursor() as cursor:
                    cursor.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                        " AND datname = current_database() AND application_name NOT LIKE 'djqueue%'"
                    )

        assert labels() == [str(number) for number in range(6)]
        assert "OperationalError" not in running.log

    def test_jobs_with_event_loops_of_their_own_share_no_thread_and_no_connection(self) -> None:
        with worker("--concurrency", "2") as running:
            running.wait_for_log("worker.start")
            sleeping = sessions.sleep_in_own_loop.enqueue(30)
            first = sessions.write_in_own_loop.enqueue("first")
            eventually(lambda: outcome(first)[0] == "completed", explain=lambda: running.log)
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND datname = current_database() AND application_name NOT LIKE 'djqueue%'"
                )
            second = sessions.write_in_own_loops_and_fork.enqueue("second")
            eventually(lambda: outcome(second)[0] in FINAL_STATES, 20, lambda: running.log)
            assert outcome(sleeping)[0] == "executing"
            running.kill_all()

        assert outcome(second) == ("completed", "")
        assert second.return_value == 0
        assert labels() == ["first", "second", "second fork"]

    @pytest.mark.parametrize(("age", "most"), [("1", 4), ("3600", 1)])
    def test_t02_conn_max_age_is_looked_at_while_the_thread_is_busy(
        self, age: str, most: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DJQUEUE_CONN_MAX_AGE", age)
        results = [sessions.backend_after.enqueue(0.5) for _ in range(8)]

        finish(*results)

        seen = len({result.return_value for result in results})
        assert seen >= 2 if age == "1" else seen == most


@pytest.mark.usefixtures("store")
class TestTimeouts:
    @pytest.mark.parametrize(
        ("task", "args"),
        [
            (sessions.sleep_after_rollback, ()),
            (sessions.sleep_again_and_again, ()),
            (sessions.sleep_in_a_thread, ("sensitive",)),
            (sessions.sleep_in_a_thread, ("lent",)),
        ],
    )
    def test_t03_a_statement_ends_at_the_deadline_whatever_happened_before(self, task: Any, args: tuple[str]) -> None:
        result = task.enqueue(*args)
        after = tasks.record.enqueue("after")

        log = finish(result, after)

        assert outcome(result) == ("discarded", "TaskTimeout"), log
        assert outcome(after) == ("completed", "")
        assert "job.stuck" not in log
        assert _sleepers() == 0

    def test_t03_the_limit_of_the_project_holds_during_a_job_with_a_timeout(self) -> None:
        [role] = _fetch("SELECT current_user")
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER ROLE \"{role}\" SET statement_timeout = '29s'")
        try:
            during = sessions.limited.enqueue()
            after = tasks.statement_timeout.enqueue()
            finish(during, after)
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f'ALTER ROLE "{role}" RESET statement_timeout')

        assert (during.return_value, after.return_value) == ("29s", "29s")


@pytest.mark.usefixtures("store")
class TestSharedThreads:
    @pytest.mark.parametrize("age", ["0", "3600"])
    def test_t51_threads_that_a_task_borrows_get_living_connections(
        self, age: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DJQUEUE_CONN_MAX_AGE", age)
        monkeypatch.setenv("DJQUEUE_CONN_HEALTH_CHECKS", "1")
        with worker("--concurrency", "8") as running:
            running.wait_for_log("worker.start")
            for _ in range(4):
                results = [sessions.lent.enqueue(number) for number in range(8)]
                eventually(
                    lambda results=results: {outcome(result)[0] for result in results} == {"completed"},
                    explain=lambda: running.log,
                )
                with connection.cursor() as cursor:
                    cursor.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                        " AND datname = current_database() AND application_name NOT LIKE 'djqueue%'"
                    )


def _fetch(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()


def _sleepers() -> int:
    [count] = _fetch(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(60)%'"
        " AND pid <> pg_backend_pid()"
    )
    return int(count)
