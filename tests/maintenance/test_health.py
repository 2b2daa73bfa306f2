from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from djqueue.engines.postgres import PostgresEngine
from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.health import Concern, Health, Inspection, QueueHealth, TableHealth, VacuumBlocker
from djqueue.jobs.lists import WorkerStatus
from djqueue.jobs.records import Ack, NewJob
from djqueue.jobs.states import JobState
from djqueue.maintenance.health import Finding, judge, size, span
from tests import settings as test_settings
from tests import stores

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


def worker(name: str, silent_seconds: float, *, is_dead: bool = False) -> WorkerStatus:
    return WorkerStatus(uuid4(), name, "host", 1, {"default": None}, 10, silent_seconds, False, is_dead)


GOOD = Health(
    workers=[worker("w", 1.0)],
    leader_seconds=100.0,
    loops={"stager": 0.5, "pruner": 20.0, "lifeline": 1.0},
    history_rows=0,
    tables=TableHealth(
        dead_rows=0,
        live_rows=0,
        vacuumed_seconds=3.0,
        table_bytes=0,
        fetch_index_bytes=0,
        history_bytes=0,
        notification_usage=0.0,
    ),
)

OLD = Concern(id="E", text="It is too old.", hint="Upgrade it.", is_fatal=True)
FORGETFUL = Concern(id="W", text="A restart loses all jobs.", hint="Set appendonly yes.")
on_redis = pytest.mark.parametrize("engine", stores.REDIS, indirect=True)


def changed(**fields: object) -> Health:
    of_tables = {name: fields.pop(name) for name in TableHealth.__dataclass_fields__ if name in fields}
    return replace(GOOD, **fields, tables=replace(GOOD.tables, **of_tables))  # type: ignore[arg-type,type-var]


def wrong(health: Health, **options: float) -> list[Finding]:
    return [finding for finding in judge(health, **options) if not finding.is_ok]


class TestJudge:
    def test_nothing_is_wrong_where_all_is_well(self):
        assert wrong(GOOD) == []

    @pytest.mark.parametrize(
        ("fields", "name", "words", "is_fatal"),
        [
            ({"workers": []}, "workers", "Start one: manage.py runworker", True),
            ({"leader_seconds": None}, "leader", "Start a worker", True),
            ({"loops": {**GOOD.loops, "stager": 60.0}}, "stager", "leader's log", True),
            ({"loops": {**GOOD.loops, "pruner": 7200.0}, "leader_seconds": 9999.0}, "pruner", "leader's log", False),
            ({"loops": {**GOOD.loops, "scheduler": 61.0}}, "scheduler", "leader's log", True),
            ({"cron_entries": 2, "scheduler_seconds": 61.0}, "crontab", "runcron", True),
            ({"cron_entries": 2, "scheduler_seconds": None}, "crontab", "runcron", True),
            ({"overdue_seconds": 11.0}, "delayed jobs", "stager", True),
            ({"queues": [QueueHealth("mail", 301.0, False, True)]}, "queue mail", "more workers", True),
            ({"queues": [QueueHealth("mail", 1.0, False, False)]}, "queue mail", "runworker --queues mail", True),
            ({"queues": [QueueHealth("mail", 900.0, True, True)]}, "queue mail", "Resume", False),
            ({"blockers": [VacuumBlocker("session", "pid 7", 301.0, 5)]}, "snapshots", "pg_terminate_backend", False),
            ({"blockers": [VacuumBlocker("replication slot", "old", None, 200_000)]}, "snapshots", "drop", False),
            ({"blockers": [VacuumBlocker("prepared transaction", "x", 400.0, 9)]}, "snapshots", "ROLLBACK", False),
            ({"dead_rows": 200_000}, "dead rows", "VACUUM djqueue_job", False),
            ({"is_autovacuum_on": False}, "dead rows", "autovacuum_enabled", False),
            ({"fetch_index_bytes": 2**30}, "sizes", "REINDEX", False),
            ({"notification_usage": 0.5}, "notifications", "End that session", True),
            ({"dead_rows": None}, "dead rows", "", False),
            ({"server": Inspection(server="Redis 5", concerns=[OLD])}, "server", "Upgrade", True),
            ({"server": Inspection(server="Redis 8", concerns=[FORGETFUL])}, "server", "appendonly", False),
        ],
    )
    def test_what_is_wrong_is_told_with_advice(self, fields, name, words, is_fatal):
        [finding] = wrong(changed(**fields))

        assert (finding.name, finding.is_fatal) == (name, is_fatal)
        assert words in finding.advice

    def test_t23_a_crontab_that_is_served_or_empty_is_no_trouble(self):
        assert wrong(changed(cron_entries=2, scheduler_seconds=5.0, loops={**GOOD.loops, "scheduler": 2.0})) == []
        assert wrong(changed(cron_entries=0, scheduler_seconds=None)) == []

    def test_without_a_leader_nobody_is_sent_to_its_log(self):
        findings = wrong(changed(overdue_seconds=11.0, leader_seconds=None))

        assert [finding.name for finding in findings] == ["leader", "delayed jobs"]
        assert "log" not in findings[1].advice

    def test_a_silent_worker_is_told_and_only_fatal_while_nobody_leads(self):
        workers = [*GOOD.workers, worker("gone", 60.0), worker("dead", 900.0, is_dead=True)]

        assert [(f.name, f.is_fatal) for f in wrong(changed(workers=workers))] == [("worker gone", False)]

    def test_loops_of_a_former_leader_are_not_held_against_the_new_one(self):
        assert wrong(changed(loops={"stager": 86_400.0, "pruner": 86_400.0}, leader_seconds=3.0)) == []

    def test_the_age_that_is_too_old_can_be_chosen(self):
        health = changed(queues=[QueueHealth("mail", 50.0, False, True)])

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


@on_redis
class TestServer:
    def test_what_the_server_is_and_how_much_history_it_keeps_is_told(self, engine, worker, me):
        engine.insert([NewJob("tests.task")])
        [job] = worker.fetch("default", 1, me)
        worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)])

        findings = judge(engine.health())

        [server, *concerns] = [finding for finding in findings if finding.name == "server"]
        assert server.text.startswith(("Valkey 9", "Redis 7"))
        assert "eviction: noeviction" in server.text
        # The servers of the tests write nothing to the disk.
        assert [(finding.level, "appendonly" in finding.advice) for finding in concerns] == [("warning", True)]
        assert [finding.text for finding in findings if finding.name == "history"] == ["1 finished job is kept."]

    def test_nothing_is_said_of_what_only_a_database_has(self, engine):
        names = {finding.name for finding in judge(engine.health())}

        assert names.isdisjoint({"snapshots", "dead rows", "sizes", "notifications"})


class TestLook:
    def test_the_oldest_available_job_of_each_queue_counts_whatever_its_level(self, engine, worker, me):
        engine.insert([NewJob("tests.task")], now=engine.now() - timedelta(hours=1))
        engine.insert([NewJob("tests.task", priority=9), NewJob("tests.task", queue="mail")])

        default, mail = engine.health().queues

        assert (default.queue, default.is_served, default.is_paused) == ("default", True, False)
        assert 3600 < default.oldest_available_seconds < 3700
        assert (mail.queue, mail.is_served) == ("mail", False)
        assert mail.oldest_available_seconds < 60

    def test_what_executes_does_not_wait(self, engine, worker, me):
        engine.insert([NewJob("tests.task")])
        worker.fetch("default", 1, me)

        assert [queue.oldest_available_seconds for queue in engine.health().queues] == [None]

    def test_workers_leader_and_overdue_jobs_are_seen(self, engine, worker, me):
        worker.elect(uuid4(), 10.0, loops={"stager": 3.0})
        engine.insert([NewJob("tests.task")])
        [job] = worker.fetch("default", 1, me)
        worker.ack([Ack(job.id, job.claim, JobState.RETRYABLE, delay=60.0)], now=engine.now() - timedelta(seconds=80))

        health = engine.health()

        assert 0 <= health.leader_seconds < 60
        assert 3 <= health.loops["stager"] < 60
        assert 20 <= health.overdue_seconds < 80
        assert [one.name for one in health.workers] == ["test"]
        assert 0 <= health.workers[0].silent_seconds < 60
        assert [(queue.queue, queue.oldest_available_seconds) for queue in health.queues] == [("default", None)]

    def test_a_queue_that_only_a_dead_or_draining_worker_serves_is_not_served(self, engine, worker, register):
        dead, draining = register(), register()
        engine.insert([NewJob("tests.task")])
        worker.bury({dead: None})
        assert engine.health().queues[0].is_served

        worker.beat([draining], draining=[draining])

        assert not engine.health().queues[0].is_served
        assert sorted(one.is_dead for one in engine.health().workers) == [False, True]

    def test_a_paused_queue_is_seen_though_nothing_is_in_it(self, engine):
        engine.pause("mail")

        assert [(queue.queue, queue.is_paused) for queue in engine.health().queues] == [("mail", True)]

    def test_a_lease_that_ran_out_is_no_leader(self, engine, worker):
        worker.elect(uuid4(), -1.0)

        assert engine.health().leader_seconds is None


@pytest.mark.parametrize("engine", ["postgres", "valkey"], indirect=True)
class TestCommand:
    @pytest.fixture(autouse=True)
    def _store(self, engine: Engine, settings: Any) -> None:
        if not isinstance(engine, PostgresEngine):
            settings.TASKS = test_settings.tasks("redis")

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

    def test_without_a_worker_it_is_not(self, engine):
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

    def test_a_server_that_does_not_answer_is_unhealthy(self, engine, monkeypatch):
        def fail(self: object) -> None:
            raise EngineUnavailable("The server at nowhere:1 cannot be reached: refused")

        monkeypatch.setattr(type(engine), "health", fail)

        code, text = self.look()

        assert code == 1
        assert "nowhere:1" in text

    def test_nonsense_is_refused(self, engine):
        with pytest.raises(CommandError, match="Invalid number of seconds"):
            self.look("--max-age-seconds", "nan")
