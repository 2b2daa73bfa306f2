"""Faults of the network and the database, on real workers; the numbers are those of the fault table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from djqueue import conf
from djqueue.engines.postgres.connection import STATEMENT_TIMEOUT_SECONDS
from djqueue.models import FinishedJob, Job, Worker
from tests.backlog import states
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import WorkerProcess, environment, eventually, worker
from tests.proxy import Proxy, proxy

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def wire(transactional_db: None) -> Iterator[Proxy]:
    """A proxy before the test's database; workers get to it with ``environment(wire.port)``."""
    settings = connection.settings_dict
    with proxy(settings["HOST"], int(settings["PORT"])) as running:
        yield running


def _is_ready(running: WorkerProcess) -> None:
    running.wait_for_log("worker.start")


class TestNetwork:
    def test_b52_refused_connections_are_waited_out(self, wire: Proxy) -> None:
        with worker(env=environment(wire.port)) as running:
            _is_ready(running)
            [pid] = running.child_pids()
            wire.refuse()
            time.sleep(20)  # the fault lasts that long
            wire.accept()
            result = tasks.record.enqueue("after")
            eventually(lambda: FinishedJob.objects.exists(), 15, lambda: running.log)

            assert running.child_pids() == [pid], running.log
            # Once per step of the backoff, for each of the services.
            assert running.log.count("service=producer failures=") < 15, running.log
            assert "Traceback" not in running.log
            running.stop()
            assert running.wait() == 0, running.log

        result.refresh()
        assert (result.return_value, result.attempts) == ("after", 1)

    def test_b54_a_network_that_swallows_packets_is_noticed_and_survived(self, wire: Proxy) -> None:
        tasks.nap.enqueue("runs through", 12)
        with worker(env={**environment(wire.port), "DJQUEUE_STATEMENT_TIMEOUT": "3"}) as running:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: running.log)
            wire.swallow()
            running.wait_for_log("no answer within")
            running.wait_for_log("supervisor.unhealthy")
            # It has ended, and nobody is told before it is stored: it may be somebody else's by now.
            running.wait_for_log("service=acker failures")
            assert "state=completed" not in running.log
            wire.flow()
            for number in range(20):
                tasks.record.enqueue(str(number))
            eventually(lambda: states() == {"completed": 21}, 60, lambda: running.log)
            running.wait_for_log("supervisor.healthy")
            running.stop()
            assert running.wait() == 0, running.log

        assert Entry.objects.filter(label="runs through").count() == 1
        assert set(FinishedJob.objects.values_list("attempt", flat=True)) == {1}

    def test_b54_with_the_defaults_it_is_noticed_within_a_minute(self) -> None:
        assert conf.PostgresOptions().statement_timeout_seconds == STATEMENT_TIMEOUT_SECONDS
        assert STATEMENT_TIMEOUT_SECONDS * 4 / 3 < 60

    def test_b10_a_slow_network_only_slows(self, wire: Proxy) -> None:
        wire.latency_seconds = 0.2
        tasks.record.enqueue_many(((str(number),), {}) for number in range(30))
        with worker("--drain", env=environment(wire.port)) as running:
            assert running.wait() == 0, running.log

        assert states() == {"completed": 30}
        assert set(FinishedJob.objects.values_list("attempt", flat=True)) == {1}

    def test_a_worker_that_stops_while_the_database_is_away_ends(self, wire: Proxy) -> None:
        """It has an outcome that it cannot store, and its supervisor a dead worker that it cannot report."""
        tasks.nap.enqueue("lost", 1)
        with worker(env={**environment(wire.port), "DJQUEUE_SHUTDOWN_TIMEOUT": "2"}) as running:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: running.log)
            wire.refuse()
            running.stop()

            assert running.wait(30) == 0, running.log

        assert states() == {"executing": 1}
        with worker() as other:  # finds the silent one
            eventually(lambda: states() == {"completed": 1}, 40, lambda: other.log)

    def test_a_database_away_for_twenty_seconds_costs_no_job_its_attempt_or_outcome(self, wire: Proxy) -> None:
        tasks.nap.enqueue("ends meanwhile", 8)
        tasks.anap.enqueue("ends afterwards", 25)
        with (
            worker("--processes", "2", env=environment(wire.port)) as running,
            worker(env=environment(wire.port)) as other,
        ):
            eventually(lambda: Entry.objects.count() == 2, explain=lambda: running.log)
            wire.refuse()
            time.sleep(20)  # the fault lasts that long
            wire.accept()
            eventually(lambda: states() == {"completed": 2}, 40, lambda: running.log + other.log)

            assert "silent" not in running.log + other.log
        assert Entry.objects.count() == 2


class TestClaims:
    def test_b02_a_stop_during_the_commit_of_a_claim_loses_nothing(self, wire: Proxy) -> None:
        claims = threading.Event()

        def watch(sent: bytes) -> None:
            if b"FOR UPDATE SKIP LOCKED" in sent and b"claimed AS" in sent:
                claims.set()

        # Without LISTEN it polls, and each fetch is sent as text.
        with worker(env={**environment(wire.port), "DJQUEUE_LISTEN": "0"}) as running:
            _is_ready(running)
            wire.latency_seconds = 0.7
            wire.watch = watch
            job = tasks.record.enqueue("claimed")
            claims.clear()
            assert claims.wait(20)
            running.stop()  # the statement is on its way, the answer is not
            wire.latency_seconds = 0
            assert running.wait() == 0, running.log

        stored = Job.objects.filter(pk=job.id).first() or FinishedJob.objects.get(pk=job.id)
        assert (stored.state, stored.attempt) in [("available", 0), ("completed", 1)], running.log
        assert not Worker.objects.exists()


class TestReadOnly:
    def test_b10_a_read_only_spell_is_waited_out_and_outcomes_are_stored_afterwards(self) -> None:
        name = connection.settings_dict["NAME"]
        tasks.nap.enqueue("through", 4)
        with worker() as running:
            eventually(lambda: Entry.objects.count() == 1, explain=lambda: running.log)
            try:
                _make_read_only(name, "on")
                running.wait_for_log("read-only")
                time.sleep(8)  # the fault lasts that long
            finally:
                _make_read_only(name, "off")
            result = tasks.record.enqueue("after")
            eventually(lambda: states() == {"completed": 2}, 30, lambda: running.log)

        result.refresh()
        assert result.return_value == "after"
        assert set(FinishedJob.objects.values_list("attempt", flat=True)) == {1}


def _make_read_only(database: str, value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = off")
        cursor.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = {value}')
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    connection.close()
