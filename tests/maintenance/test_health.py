from __future__ import annotations

import json
from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection

from djqueue.engines.postgres.connection import connect
from djqueue.maintenance.health import Finding, judge, size, span
from djqueue.models import Worker
from djqueue.records import Ack, NewJob
from djqueue.states import JobState
from djqueue.vitals import Health, SeenQueue, SeenWorker, SnapshotHolder

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

GOOD = Health(
    workers=[SeenWorker("w", ["default"], 1.0, False)],
    leader_seconds=100.0,
    loops={"stager": 0.5, "pruner": 20.0, "lifeline": 1.0},
    dead_rows=0,
    live_rows=0,
    vacuumed_seconds=3.0,
    table_bytes=0,
    fetch_index_bytes=0,
    history_rows=0,
    history_bytes=0,
    notification_usage=0.0,
)


def changed(**fields: object) -> Health:
    names = Health.__dataclass_fields__
    return Health(**{**{name: getattr(GOOD, name) for name in names}, **fields})  # type: ignore[arg-type]


def wrong(health: Health, **options: float) -> list[Finding]:
    return [finding for finding in judge(health, **options) if not finding.is_ok]


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


class TestJudge:
    def test_nothing_is_wrong_where_all_is_well(self):
        assert wrong(GOOD) == []

    @pytest.mark.parametrize(
        ("fields", "name", "words", "is_fatal"),
        [
            ({"workers": []}, "workers", "Nothing is run until", True),
            ({"leader_seconds": None}, "leader", "Start a worker", True),
            ({"loops": {**GOOD.loops, "stager": 60.0}}, "stager", "leader's log", True),
            ({"loops": {**GOOD.loops, "pruner": 7200.0}, "leader_seconds": 9999.0}, "pruner", "leader's log", False),
            ({"overdue_seconds": 11.0}, "delayed jobs", "stager", True),
            ({"queues": [SeenQueue("mail", 301.0, False, True)]}, "queue mail", "more workers", True),
            ({"queues": [SeenQueue("mail", 1.0, False, False)]}, "queue mail", "runworker --queues mail", True),
            ({"queues": [SeenQueue("mail", 900.0, True, True)]}, "queue mail", "Resume", False),
            ({"holders": [SnapshotHolder("session", "pid 7", 301.0, 5)]}, "snapshots", "pg_terminate_backend", False),
            ({"holders": [SnapshotHolder("replication slot", "old", None, 200_000)]}, "snapshots", "drop", False),
            ({"holders": [SnapshotHolder("prepared transaction", "x", 400.0, 9)]}, "snapshots", "ROLLBACK", False),
            ({"dead_rows": 200_000}, "dead rows", "VACUUM djqueue_job", False),
            ({"is_autovacuum_on": False}, "dead rows", "autovacuum_enabled", False),
            ({"fetch_index_bytes": 2**30}, "sizes", "REINDEX", False),
            ({"notification_usage": 0.5}, "notifications", "end it", True),
            ({"dead_rows": None}, "dead rows", "", False),
        ],
    )
    def test_what_is_wrong_is_told_with_advice(self, fields, name, words, is_fatal):
        [finding] = wrong(changed(**fields))

        assert (finding.name, finding.is_fatal) == (name, is_fatal)
        assert words in finding.advice

    def test_a_silent_worker_is_told_and_only_fatal_while_nobody_leads(self):
        workers = [*GOOD.workers, SeenWorker("gone", [], 60.0, False), SeenWorker("dead", [], 900.0, True)]

        assert [(f.name, f.is_fatal) for f in wrong(changed(workers=workers))] == [("worker gone", False)]

    def test_loops_of_a_former_leader_are_not_held_against_the_new_one(self):
        assert wrong(changed(loops={"stager": 86_400.0, "pruner": 86_400.0}, leader_seconds=3.0)) == []

    def test_the_age_that_is_too_old_can_be_chosen(self):
        health = changed(queues=[SeenQueue("mail", 50.0, False, True)])

        assert wrong(health) == []
        assert wrong(health, max_age_seconds=49) != []

    def test_times_and_sizes_are_said_as_people_say_them(self):
        assert [span(s) for s in (0.25, 59, 119, 121, 7300, 200_000)] == [
            "0.2 seconds",
            "59 seconds",
            "119 seconds",
            "2 minutes",
            "2 hours",
            "2 days",
        ]
        assert [size(n) for n in (12, 2048, 5 * 2**20, 3 * 2**30)] == ["12 bytes", "2 KiB", "5 MiB", "3.0 GiB"]


class TestLook:
    def test_the_oldest_available_job_of_each_queue_counts_whatever_its_level(self, engine, worker, me):
        engine.insert([NewJob("tests.task"), NewJob("tests.task", priority=9), NewJob("tests.task", queue="mail")])
        execute(
            "UPDATE djqueue_job SET ready_at = ready_at - interval '1 hour' WHERE priority = 0 AND queue = 'default'"
        )

        default, mail = engine.health().queues

        assert (default.queue, default.is_served, default.is_paused) == ("default", True, False)
        assert 3600 < default.oldest_available_seconds < 3700
        assert (mail.queue, mail.is_served) == ("mail", False)
        assert mail.oldest_available_seconds < 60

    def test_what_executes_does_not_wait(self, engine, worker, me):
        engine.insert([NewJob("tests.task")])
        worker.fetch("default", 1, me)

        assert [queue.oldest_available_seconds for queue in engine.health().queues] == [None]

    def test_who_holds_a_snapshot_is_named(self, engine):
        with connect("default", "report") as reader:
            reader.autocommit = False
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1")
            pid = reader.info.backend_pid

            holders = engine.health().holders

        [holder] = [one for one in holders if "djqueue report" in one.name]
        assert holder.kind == "session"
        assert f"pid {pid}," in holder.name
        assert holder.age_seconds is not None

    def test_workers_leader_and_overdue_jobs_are_seen(self, engine, worker, me):
        worker.elect(uuid4(), 10.0, loops={"stager": 3.0})
        engine.insert([NewJob("tests.task")])
        [job] = worker.fetch("default", 1, me)
        worker.ack([Ack(job.id, job.claim, JobState.RETRYABLE, delay=60.0)])
        execute("UPDATE djqueue_job SET scheduled_at = now() - interval '20 seconds'")
        Worker.objects.update(beat_at="2020-01-01T00:00Z")

        health = engine.health()

        assert 0 <= health.leader_seconds < 60
        assert 3 <= health.loops["stager"] < 60
        assert 20 <= health.overdue_seconds < 80
        assert [one.name for one in health.workers] == ["test"]
        assert health.workers[0].silent_seconds > 86_400
        assert [queue.queue for queue in health.queues] == []

    def test_a_lease_that_ran_out_is_no_leader(self, engine, worker):
        worker.elect(uuid4(), -1.0)

        assert engine.health().leader_seconds is None

    def test_sizes_and_statistics_are_read(self, engine):
        health = engine.health()

        assert health.is_autovacuum_on is True
        assert None not in (health.dead_rows, health.table_bytes, health.history_bytes, health.notification_usage)

    def test_autovacuum_that_was_switched_off_is_seen(self, engine):
        execute("ALTER TABLE djqueue_job SET (autovacuum_enabled = false)")
        try:
            assert engine.health().is_autovacuum_on is False
        finally:
            execute("ALTER TABLE djqueue_job RESET (autovacuum_enabled)")


class TestCommand:
    def look(self, *args: str) -> tuple[int, str]:
        out = StringIO()
        try:
            call_command("queuehealth", *args, stdout=out)
        except SystemExit as end:
            return int(end.code or 0), out.getvalue()
        return 0, out.getvalue()

    def test_an_installation_that_works_is_healthy(self, worker, me):
        worker.elect(uuid4(), 10.0)

        code, text = self.look()

        assert code == 0, text
        assert "BAD" not in text

    def test_without_a_worker_it_is_not(self):
        code, text = self.look()

        assert code == 1
        assert "manage.py runworker" in text

    def test_json_says_the_same(self, worker, me, engine):
        worker.elect(uuid4(), 10.0)
        engine.insert([NewJob("tests.task", queue="mail")])

        code, text = self.look("--json")

        answer = json.loads(text)
        assert (code, answer["is_healthy"]) == (1, False)
        assert [f["name"] for f in answer["findings"] if f["level"] == "bad"] == ["queue mail"]

    def test_a_database_that_does_not_answer_is_unhealthy(self, monkeypatch):
        def fail(self: object) -> None:
            raise DatabaseError("no such table")

        monkeypatch.setattr("djqueue.engines.postgres.engine.PostgresEngine.health", fail)

        code, text = self.look()

        assert code == 1
        assert "manage.py migrate" in text

    def test_nonsense_is_refused(self):
        with pytest.raises(CommandError, match="is no number of seconds"):
            self.look("--max-age-seconds", "nan")
