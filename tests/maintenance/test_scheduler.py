"""The scheduler on every store, with times passed in."""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from django.db import connection

from djqueue.cron import CronDefinition, CronEntry, CronTick
from djqueue.crontab import new_job, rule_for
from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineRefused
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Ack, ClaimedJob, Job
from djqueue.jobs.states import LIVE_STATES, JobState
from djqueue.maintenance import scheduler as scheduler_module
from djqueue.maintenance.health import judge
from djqueue.maintenance.scheduler import Scheduler
from djqueue.tasks import registry
from tests.crontab import tasks
from tests.roles import Roles

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
TASK = tasks.plain.module_path
Open = Callable[..., Scheduler]


def add(engine: Engine, name: str = "entry", expression: str = "* * * * *", now=NOW, **fields: Any) -> None:
    fields = {"task": TASK, "args": (1,), **fields}
    assert engine.cron.add(name, CronDefinition(expression=expression, **fields), now=now)


def read(engine: Engine, name: str = "entry") -> CronEntry:
    [entry] = engine.cron.entries([name])
    return entry


def change(engine: Engine, name: str = "entry", now=NOW, is_paused: bool = False, **fields: Any) -> bool:
    entry = read(engine, name)
    return engine.cron.change(entry, replace(entry.definition, **fields), code=entry.code, is_paused=is_paused, now=now)


def settle(scheduler: Scheduler, now: datetime) -> float:
    """Run until nothing is left to do at this moment."""
    for _ in range(1000):
        if pause := scheduler.run_once(now=now):
            return pause
    raise AssertionError("It never rests.")


def history(engine: Engine, name: str = "entry") -> list[CronTick]:
    return engine.cron.ticks(read(engine, name), 1000)[::-1]


def ticks(engine: Engine, name: str = "entry") -> list[tuple[datetime | None, str]]:
    return [(tick.nominal_at, ": ".join(filter(None, (tick.outcome, tick.reason)))) for tick in history(engine, name)]


def times(engine: Engine, name: str = "entry") -> list[datetime | None]:
    return [at for at, _ in ticks(engine, name)]


def jobs(engine: Engine) -> list[Job]:
    """The live jobs, the oldest first."""
    page = engine.newest(JobFilter(states=LIVE_STATES), limit=1000)
    assert page.before is None
    return [*page.jobs][::-1]


def minutes(*numbers: int) -> list[datetime]:
    return [NOW.replace(second=0) + number * MINUTE for number in numbers]


class TestTicking:
    def test_a_time_that_is_due_becomes_a_job_of_the_task(self, engine: Engine, scheduler: Scheduler) -> None:
        add(engine, args=(1,), kwargs={"b": 2})

        settle(scheduler, NOW + MINUTE)

        [job] = jobs(engine)
        assert (job.task, job.args, job.kwargs) == (TASK, [1], {"b": 2})
        assert (job.queue, job.priority, job.max_attempts, job.state) == ("mail", 5, 3, "available")
        assert job.meta == {"cron": {"entry": "entry", "nominal_at": "2030-01-01T12:01:00+00:00"}}
        [tick] = history(engine)
        assert (tick.nominal_at, tick.job_id, tick.at) == (minutes(1)[0], job.id, NOW + MINUTE)
        entry = read(engine)
        assert (entry.runs, entry.last_outcome) == (1, "enqueued")
        assert (entry.last_nominal_at, entry.next_at) == tuple(minutes(1, 2))

    def test_an_entry_may_have_a_queue_and_a_priority_of_its_own(self, engine, scheduler) -> None:
        add(engine, queue="reports", priority=-3)

        settle(scheduler, NOW + MINUTE)

        assert [(job.queue, job.priority) for job in jobs(engine)] == [("reports", -3)]

    def test_it_sleeps_until_the_next_time_and_a_second_at_most(self, engine, scheduler) -> None:
        add(engine)

        assert settle(scheduler, NOW) == 1.0
        assert settle(scheduler, NOW + timedelta(seconds=29.75)) == pytest.approx(0.25)
        assert len(jobs(engine)) == 0

    def test_nothing_happens_without_the_lead(self, engine) -> None:
        add(engine)
        with engine.open_cron() as cron:
            follower = Scheduler(cron, store="postgresql:default", is_leader=lambda: False)

            assert follower.run_once(now=NOW + MINUTE) == 1.0

        assert not ticks(engine)
        assert [entry.name for entry in engine.cron.entries()] == ["entry"]

    def test_jitter_delays_the_job_and_not_the_time(self, engine, scheduler) -> None:
        add(engine, jitter_seconds=30)

        for minute in range(1, 11):
            settle(scheduler, NOW.replace(second=0) + minute * MINUTE)

        assert times(engine) == minutes(*range(1, 11))
        delays = {job.scheduled_at - job.inserted_at for job in jobs(engine)}
        assert len(delays) > 5
        assert all(timedelta(0) <= delay <= 30 * SECOND for delay in delays)

    def test_b39_a_timer_three_milliseconds_early_makes_no_second_job(self, engine, open_scheduler: Open) -> None:
        add(engine)
        schedulers = [open_scheduler(), open_scheduler()]

        for minute in range(1, 61):
            for scheduler in schedulers:
                settle(scheduler, NOW.replace(second=0) + minute * MINUTE - timedelta(milliseconds=3))
            for scheduler in schedulers:
                settle(scheduler, NOW.replace(second=0) + minute * MINUTE)

        assert times(engine) == minutes(*range(1, 61))
        assert len(jobs(engine)) == 60

    def test_a_clock_that_is_set_back_repeats_nothing(self, engine, open_scheduler: Open) -> None:
        add(engine)

        for minute in (1, 2, 3):
            settle(open_scheduler(), NOW + minute * MINUTE)
        for step in (0, 1, 2, 3, 4, 5):
            settle(open_scheduler(), NOW + step * MINUTE)

        assert times(engine) == minutes(1, 2, 3, 4, 5)

    def test_a_clock_that_leaps_ahead_and_back_repeats_nothing(self, engine, scheduler) -> None:
        add(engine)
        settle(scheduler, NOW + MINUTE)

        settle(scheduler, NOW + 61 * MINUTE)
        for minute in range(2, 64):
            settle(scheduler, NOW + minute * MINUTE)

        assert times(engine) == minutes(1, 60, 61, 62, 63)
        assert ticks(engine)[1] == (minutes(60)[0], "skipped: missed")
        assert len(jobs(engine)) == 4

    def test_b43_restarted_every_six_seconds_it_still_fires_every_ten(self, engine, open_scheduler: Open) -> None:
        add(engine, expression="* * * * * */10")

        for second in range(0, 61, 6):
            scheduler = open_scheduler(read_code=False)
            settle(scheduler, NOW + second * SECOND)

        assert times(engine) == [NOW + second * SECOND for second in (10, 20, 30, 40, 50, 60)]

    def test_two_schedulers_in_threads_give_each_time_once_and_miss_none(self, engine, open_scheduler: Open) -> None:
        # All: a clock that was a minute and a half behind finds times that are late.
        add(engine, "minutely", misfire="all")
        add(engine, "secondly", "* * * * * */20", misfire="all")
        errors: list[BaseException] = []
        start = threading.Barrier(3)

        def run(seed: int) -> None:
            try:
                chance, scheduler = random.Random(seed), open_scheduler()
                at = NOW
                start.wait()
                while at < NOW + 30 * MINUTE:
                    # Clocks that are a little early or late, and now and then are set back.
                    settle(scheduler, at + timedelta(milliseconds=chance.choice([-3, 0, 3, 40, -90_000])))
                    at += timedelta(seconds=chance.choice([0.5, 1, 5, 20]))
                settle(scheduler, NOW + 30 * MINUTE)
            except BaseException as error:
                errors.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]

        assert not errors
        assert times(engine, "minutely") == minutes(*range(1, 31))
        assert times(engine, "secondly") == [NOW.replace(second=0) + 20 * n * SECOND for n in range(2, 92)]
        assert len(jobs(engine)) == 120

    def test_pruned_ticks_run_no_time_again(self, engine, open_scheduler: Open) -> None:
        add(engine)
        settle(open_scheduler(), NOW + MINUTE)

        assert engine.cron.prune(timedelta(0), now=NOW + 2 * MINUTE) == 1
        settle(open_scheduler(), NOW + MINUTE)

        assert not ticks(engine)
        assert len(jobs(engine)) == 1

    @pytest.mark.parametrize("engine", ["valkey"], indirect=True)
    def test_entries_of_many_pages_are_all_seen(self, engine: Engine, scheduler: Scheduler, monkeypatch) -> None:
        monkeypatch.setattr("djqueue.engines.redis.cron._PAGE", 2)
        names = [f"entry {n}" for n in range(6)]
        for name in names:
            add(engine, name)

        settle(scheduler, NOW + MINUTE)

        assert [entry.name for entry in engine.cron.entries()] == names
        assert [times(engine, name) for name in names] == [minutes(1)] * 6


class TestMisfire:
    def start(self, engine: Engine, scheduler: Scheduler, **fields: Any) -> None:
        add(engine, **fields)
        settle(scheduler, NOW + MINUTE)

    def test_latest_runs_the_last_one_missed_and_says_since_when(self, engine, scheduler) -> None:
        self.start(engine, scheduler)

        settle(scheduler, NOW + 10 * MINUTE + 25 * SECOND)

        assert ticks(engine)[1:] == [(minutes(10)[0], "enqueued")]
        assert history(engine)[-1].missed_from == minutes(2)[0]

    def test_skip_leaves_out_what_was_missed(self, engine, scheduler) -> None:
        self.start(engine, scheduler, misfire="skip")

        settle(scheduler, NOW + 10 * MINUTE + 25 * SECOND)
        settle(scheduler, NOW + 11 * MINUTE)

        assert ticks(engine)[1:] == [(minutes(10)[0], "skipped: missed"), (minutes(11)[0], "enqueued")]

    def test_all_runs_each_one_in_the_window(self, engine, scheduler) -> None:
        self.start(engine, scheduler, misfire="all", misfire_window_seconds=300)

        settle(scheduler, NOW + 10 * MINUTE + 25 * SECOND)

        assert ticks(engine)[1:] == [
            (minutes(5)[0], "skipped: missed"),
            *((at, "enqueued") for at in minutes(6, 7, 8, 9, 10)),
        ]

    @pytest.mark.parametrize("policy", ["skip", "latest", "all"])
    def test_what_is_late_by_less_than_half_a_minute_was_not_missed(self, engine, scheduler, policy: str) -> None:
        add(engine, expression="* * * * * */5", misfire=policy)
        settle(scheduler, NOW + 5 * SECOND)

        settle(scheduler, NOW + 33 * SECOND)

        assert ticks(engine) == [(NOW + second * SECOND, "enqueued") for second in range(5, 31, 5)]

    def test_a_year_of_missed_seconds_is_passed_at_once(self, engine, scheduler) -> None:
        add(engine, expression="* * * * * *")
        settle(scheduler, NOW + SECOND)

        settle(scheduler, NOW + timedelta(days=365))

        assert len(ticks(engine)) == 33
        assert len(jobs(engine)) == 32

    def test_a_new_entry_has_missed_nothing(self, engine, scheduler) -> None:
        add(engine, misfire="all", misfire_window_seconds=86_400)

        settle(scheduler, NOW + 3 * MINUTE)

        assert times(engine) == minutes(1, 2, 3)


class TestOverlap:
    @pytest.fixture
    def start(self, worker: Roles, me: UUID) -> Callable[[], list[ClaimedJob]]:
        """Let a worker begin what is available."""
        return lambda: worker.fetch("mail", 100, me, now=NOW)

    @pytest.fixture
    def finish(self, worker: Roles) -> Callable[[ClaimedJob], None]:
        def finish(job: ClaimedJob) -> None:
            assert worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)], now=NOW).accepted == {job.id}

        return finish

    def test_allow_runs_beside_it(self, engine, scheduler) -> None:
        add(engine)

        settle(scheduler, NOW + MINUTE)
        settle(scheduler, NOW + 2 * MINUTE)

        assert len(jobs(engine)) == 2

    def test_skip_leaves_a_time_out_while_the_previous_job_lives(self, engine, scheduler, start, finish) -> None:
        add(engine, overlap="skip")
        settle(scheduler, NOW + MINUTE)
        [job] = start()

        settle(scheduler, NOW + 2 * MINUTE)
        finish(job)
        settle(scheduler, NOW + 3 * MINUTE)

        assert [outcome for _, outcome in ticks(engine)] == ["enqueued", "skipped: overlap", "enqueued"]

    def test_queue_waits_for_the_end_of_the_previous_job(self, engine, scheduler, start, finish) -> None:
        add(engine, overlap="queue")
        add(engine, "other")
        settle(scheduler, NOW + MINUTE)
        started = start()

        assert settle(scheduler, NOW + 2 * MINUTE) == 1.0
        assert times(engine) == minutes(1)
        assert times(engine, "other") == minutes(1, 2)
        [job] = [job for job in started if job.id == history(engine)[0].job_id]
        finish(job)
        settle(scheduler, NOW + 2 * MINUTE + 20 * SECOND)

        assert times(engine) == minutes(1, 2)

    def test_of_many_that_waited_the_misfire_policy_runs_the_latest(self, engine, scheduler, start, finish) -> None:
        add(engine, overlap="queue")
        settle(scheduler, NOW + MINUTE)
        settle(scheduler, NOW + 5 * MINUTE)

        finish(*start())
        settle(scheduler, NOW + 9 * MINUTE + 25 * SECOND)

        assert [at for at, outcome in ticks(engine) if outcome == "enqueued"] == minutes(1, 9)
        assert {outcome for _, outcome in ticks(engine)} == {"enqueued", "skipped: missed"}

    def test_cancel_running_ends_what_waits_and_asks_what_executes(self, engine, scheduler, start) -> None:
        add(engine, overlap="cancel_running")
        settle(scheduler, NOW + MINUTE)
        settle(scheduler, NOW + 2 * MINUTE)
        [running] = start()
        settle(scheduler, NOW + 3 * MINUTE)

        first, second, third = (engine.get(tick.job_id) for tick in history(engine))
        assert (first.state, first.errors[-1]["by"]) == ("cancelled", "cron: entry")
        assert (second.id, second.state, second.cancel_request["by"]) == (running.id, "executing", "cron: entry")
        assert (third.state, third.cancel_request) == ("available", None)
        assert [outcome for _, outcome in ticks(engine)] == ["enqueued"] * 3

    def test_a_job_run_by_hand_counts_as_a_previous_one(self, engine, scheduler) -> None:
        add(engine, overlap="skip")
        engine.cron.run(read(engine), scheduler_module.new_job(read(engine), {}), by="anna", now=NOW)

        settle(scheduler, NOW + MINUTE)

        assert ticks(engine)[-1] == (minutes(1)[0], "skipped: overlap")


class TestEnds:
    def test_nothing_before_the_start_and_after_the_end(self, engine, scheduler) -> None:
        add(engine, start_at=minutes(3)[0], end_at=minutes(5)[0])

        for minute in range(1, 9):
            settle(scheduler, NOW + minute * MINUTE)

        assert times(engine) == minutes(3, 4, 5)
        assert read(engine).state == "finished"
        assert read(engine).next_at is None

    def test_a_number_of_runs_ends_it_and_skipped_ones_do_not_count(self, engine, scheduler) -> None:
        add(engine, max_runs=2, overlap="skip")

        settle(scheduler, NOW + MINUTE)
        settle(scheduler, NOW + 2 * MINUTE)
        engine.delete([job.id for job in jobs(engine)])
        for minute in range(3, 7):
            settle(scheduler, NOW + minute * MINUTE)

        assert [outcome for _, outcome in ticks(engine)] == ["enqueued", "skipped: overlap", "enqueued"]
        assert (read(engine).state, read(engine).runs) == ("finished", 2)

    def test_missed_times_of_one_that_ended_meanwhile_follow_the_policy_too(self, engine, scheduler) -> None:
        add(engine, end_at=minutes(5)[0])
        settle(scheduler, NOW + MINUTE)

        settle(scheduler, NOW + 60 * MINUTE)

        assert times(engine) == minutes(1, 5)
        assert read(engine).state == "finished"

    def test_more_runs_bring_it_back(self, engine, scheduler) -> None:
        add(engine, max_runs=1)
        settle(scheduler, NOW + MINUTE)

        change(engine, max_runs=2, now=NOW + 5 * MINUTE)
        settle(scheduler, NOW + 6 * MINUTE)
        settle(scheduler, NOW + 7 * MINUTE)

        assert times(engine) == minutes(1, 6)

    def test_fewer_runs_than_there_were_end_it(self, engine, scheduler) -> None:
        add(engine)
        for minute in (1, 2, 3):
            settle(scheduler, NOW + minute * MINUTE)

        change(engine, max_runs=2, now=NOW + 3 * MINUTE)
        settle(scheduler, NOW + 5 * MINUTE)

        assert times(engine) == minutes(1, 2, 3)
        assert read(engine).state == "finished"


class TestChanges:
    def test_b45_a_changed_rule_leaves_no_run_of_the_old_one(self, engine, scheduler) -> None:
        add(engine)
        settle(scheduler, NOW + MINUTE)
        settle(scheduler, NOW + MINUTE + 20 * SECOND)
        assert read(engine).next_at == minutes(2)[0]

        change(engine, expression="0 * * * *", now=NOW + MINUTE + 21 * SECOND)
        for minute in range(2, 62):
            settle(scheduler, NOW + minute * MINUTE)

        assert times(engine) == minutes(1, 60)
        assert read(engine).next_at == minutes(120)[0]

    def test_b45_a_removed_entry_runs_no_more(self, engine, scheduler) -> None:
        add(engine)
        settle(scheduler, NOW + MINUTE)

        entry = read(engine)
        assert engine.cron.remove(entry)
        settle(scheduler, NOW + 5 * MINUTE)

        assert len(jobs(engine)) == 1
        assert not engine.cron.ticks(entry)
        assert not engine.cron.remove(entry)

    def test_a_change_that_comes_between_reading_and_ticking_wins(self, engine, scheduler) -> None:
        add(engine)
        settle(scheduler, NOW)
        real = scheduler._engine.tick

        def late(*args: Any, **kwargs: Any) -> Any:
            change(engine, expression="0 * * * *", now=NOW + 20 * SECOND)
            scheduler._engine.tick = real
            return real(*args, **kwargs)

        scheduler._engine.tick = late
        settle(scheduler, NOW + MINUTE)
        settle(scheduler, NOW + MINUTE + SECOND)

        assert not ticks(engine)
        assert read(engine).next_at == minutes(60)[0]

    def test_a_pause_is_not_made_up_for(self, engine, scheduler) -> None:
        add(engine, misfire="all", misfire_window_seconds=86_400)
        settle(scheduler, NOW + MINUTE)

        change(engine, is_paused=True, now=NOW + MINUTE)
        settle(scheduler, NOW + 5 * MINUTE)
        change(engine, is_paused=False, now=NOW + 5 * MINUTE)
        settle(scheduler, NOW + 6 * MINUTE)

        assert times(engine) == minutes(1, 6)

    def test_who_read_before_somebody_elses_change_is_refused(self, engine) -> None:
        add(engine)
        entry = read(engine)
        assert change(engine, args=(2,))

        written = engine.cron.change(entry, entry.definition, code=None, is_paused=True)

        assert not written
        assert read(engine).definition.args == (2,)


class TestBadEntries:
    @pytest.mark.parametrize(
        ("values", "outcome"),
        [
            ({"task": "shop.tasks.gone"}, "skipped: unknown task"),
            ({"args": []}, "skipped: invalid: "),
            ({"kwargs": {"c": 1}}, "skipped: invalid: "),
            ({"queue": "no queue!"}, "skipped: invalid: "),
            ({"priority": 32_000}, "skipped: invalid: "),
            ({"overlap": "what"}, "skipped: invalid: "),
        ],
    )
    def test_what_cannot_run_is_skipped_with_its_reason(
        self, engine, scheduler, values: dict[str, Any], outcome: str
    ) -> None:
        add(engine)
        add(engine, "other")
        change(engine, **values)  # past all checks

        settle(scheduler, NOW + MINUTE)
        settle(scheduler, NOW + 2 * MINUTE)

        assert [found.startswith(outcome) for _, found in ticks(engine)] == [True, True]
        assert times(engine, "other") == minutes(1, 2)
        assert len(jobs(engine)) == 2

    @pytest.mark.parametrize(
        "values",
        [
            {"expression": "0 0 30 2 *"},
            {"expression": "r r * * *"},
            {"expression": "1," * 90 + "1 * * * *"},
            {"timezone": "../../etc/passwd"},
        ],
    )
    def test_hostile_rules_that_got_past_the_checks_never_disturb_the_others(
        self, engine, scheduler, values: dict[str, Any]
    ) -> None:
        add(engine)
        add(engine, "other")
        change(engine, **values)  # past all checks

        for minute in (1, 2, 3):
            settle(scheduler, NOW + minute * MINUTE)

        assert not ticks(engine)
        assert times(engine, "other") == minutes(1, 2, 3)

    def test_an_error_in_one_entry_never_stops_the_others(self, engine, scheduler, caplog) -> None:
        for name in ("a", "entry", "z"):
            add(engine, name)
        real = scheduler._job

        def broken(entry: CronEntry, nominal_at: datetime) -> Any:
            if entry.name == "entry":
                raise RuntimeError("a bug")
            return real(entry, nominal_at)

        with mock.patch.object(scheduler, "_job", broken), caplog.at_level(logging.ERROR, "djqueue"):
            settle(scheduler, NOW + MINUTE)

        assert not ticks(engine)
        assert times(engine, "a") == times(engine, "z") == minutes(1)
        assert "a bug" in caplog.text

    def test_what_the_store_refuses_never_stops_the_others(self, engine, scheduler) -> None:
        add(engine)
        add(engine, "other")
        real = scheduler._engine.tick

        def refuse(tick: Any, job: Any, **kwargs: Any) -> Any:
            if tick.entry.name == "entry":
                raise EngineRefused("no")
            return real(tick, job, **kwargs)

        with mock.patch.object(scheduler._engine, "tick", refuse):
            settle(scheduler, NOW + MINUTE)

        assert times(engine, "other") == minutes(1)

    def test_b47_a_held_unique_key_is_a_skipped_time_and_no_error(self, engine, scheduler) -> None:
        add(engine)
        add(engine, "other")
        real = scheduler._job

        def unique(entry: CronEntry, nominal_at: datetime) -> Any:
            job = real(entry, nominal_at)
            return job._replace(unique_key="held") if entry.name == "entry" else job

        with mock.patch.object(scheduler, "_job", unique):
            for minute in (1, 2, 3, 4):
                settle(scheduler, NOW + minute * MINUTE)

        assert [outcome for _, outcome in ticks(engine)] == ["enqueued", *["skipped: duplicate"] * 3]
        assert times(engine, "other") == minutes(1, 2, 3, 4)
        assert read(engine).runs == 1


class TestSynchronising:
    @pytest.fixture
    def known(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """What this process knows as tasks; the tests change it as an editor would."""
        known = {task.module_path: task for task in (tasks.report, tasks.plain)}
        monkeypatch.setattr(registry, "known", lambda: dict(known))
        monkeypatch.setattr(registry, "autodiscover", dict)
        return known

    def edit(self, known: dict[str, Any], **changes: Any) -> None:
        """Change the first entry of ``report`` in the code."""
        task = known[tasks.report.module_path]
        known[tasks.report.module_path] = replace(task, cron=(replace(task.cron[0], **changes), *task.cron[1:]))

    def test_entries_of_the_code_are_stored(self, engine, open_scheduler: Open, known) -> None:
        open_scheduler(read_code=True).run_once(now=NOW)

        entries = {entry.name: entry for entry in engine.cron.entries()}
        assert set(entries) == {"weekly-report", f"{tasks.report.module_path}:2"}
        weekly = entries["weekly-report"]
        assert weekly.definition == CronDefinition(
            task=tasks.report.module_path, expression="0 6 * * mon", timezone="Europe/Berlin", args=("all",)
        )
        assert weekly.code == weekly.definition
        assert not weekly.drift
        assert weekly.created_by == "code"

    def test_a_second_start_changes_nothing(self, engine, open_scheduler: Open, known) -> None:
        open_scheduler(read_code=True).run_once(now=NOW)
        before = engine.cron.entries()

        open_scheduler(read_code=True).run_once(now=NOW + MINUTE)

        assert engine.cron.entries() == before

    def test_what_changes_in_the_code_changes_in_the_store(self, engine, open_scheduler: Open, known) -> None:
        open_scheduler(read_code=True).run_once(now=NOW)

        self.edit(known, expression="0 7 * * mon", args=["some"])
        open_scheduler(read_code=True).run_once(now=NOW + MINUTE)

        entry = read(engine, "weekly-report")
        assert (entry.definition.expression, entry.definition.args) == ("0 7 * * mon", ("some",))
        assert not entry.drift

    def test_what_an_operator_changed_and_paused_survives(self, engine, open_scheduler: Open, known) -> None:
        open_scheduler(read_code=True).run_once(now=NOW)
        change(engine, "weekly-report", expression="30 6 * * mon", is_paused=True)

        self.edit(known, expression="0 7 * * mon", args=["some"])
        open_scheduler(read_code=True).run_once(now=NOW + MINUTE)

        entry = read(engine, "weekly-report")
        assert entry.state == "paused"
        assert entry.definition.expression == "30 6 * * mon"
        assert entry.definition.args == ("some",)
        assert entry.drift == ["expression"]
        assert entry.code is not None
        assert entry.code.expression == "0 7 * * mon"

    def test_what_is_gone_from_the_code_is_disabled_with_its_history_and_comes_back(
        self, engine, open_scheduler: Open, known
    ) -> None:
        start = datetime(2030, 1, 7, 4, 59, tzinfo=UTC)
        open_scheduler(read_code=True).run_once(now=start)
        settle(open_scheduler(), start + MINUTE)
        assert len(ticks(engine, "weekly-report")) == 1

        task = known.pop(tasks.report.module_path)
        settle(open_scheduler(read_code=True), start + timedelta(days=8))

        assert read(engine, "weekly-report").state == "disabled"
        assert len(ticks(engine, "weekly-report")) == 1
        known[task.module_path] = task
        settle(open_scheduler(read_code=True), start + timedelta(days=10))
        assert read(engine, "weekly-report").state == "active"
        assert read(engine, "weekly-report").next_at == datetime(2030, 1, 21, 5, tzinfo=UTC)
        assert len(ticks(engine, "weekly-report")) == 1

    def test_a_module_that_fails_to_import_takes_no_entries_away(
        self, engine, open_scheduler: Open, known, monkeypatch
    ) -> None:
        open_scheduler(read_code=True).run_once(now=NOW)

        known.clear()
        monkeypatch.setattr(registry, "autodiscover", lambda: {"tests.crontab.tasks": "ImportError: no"})
        open_scheduler(read_code=True).run_once(now=NOW + MINUTE)

        assert {entry.state for entry in engine.cron.entries()} == {"active"}

    def test_an_entry_of_the_database_keeps_its_name_and_is_not_touched(
        self, engine, open_scheduler: Open, known, caplog
    ) -> None:
        add(engine, "weekly-report", "0 1 * * *")

        with caplog.at_level(logging.WARNING, "djqueue"):
            open_scheduler(read_code=True).run_once(now=NOW)

        assert read(engine, "weekly-report").definition.expression == "0 1 * * *"
        assert read(engine, "weekly-report").code is None
        assert "name_taken" in caplog.text

    def test_the_code_is_read_anew_with_each_term(self, engine, known) -> None:
        leads = False
        with engine.open_cron() as cron:
            scheduler = Scheduler(cron, store="postgresql:default", is_leader=lambda: leads)
            scheduler.run_once(now=NOW)
            assert not engine.cron.entries()

            leads = True
            scheduler.run_once(now=NOW)
            self.edit(known, name="renamed")
            leads = False
            scheduler.run_once(now=NOW)
            leads = True
            scheduler.run_once(now=NOW)

        assert {entry.name: entry.state for entry in engine.cron.entries()} == {
            "renamed": "active",
            "weekly-report": "disabled",
            f"{tasks.report.module_path}:2": "active",
        }


class TestReboot:
    def test_it_runs_when_schedulers_start_and_once_a_minute_at_most(self, engine, open_scheduler: Open) -> None:
        add(engine, expression="@reboot")

        for second in (0, 0, 1, 30, 61, 300):
            settle(open_scheduler(read_code=True), NOW + second * SECOND)

        assert times(engine) == [NOW, NOW + 61 * SECOND, NOW + 300 * SECOND]
        assert read(engine).state == "active"

    def test_of_two_that_start_together_one_runs_it(self, engine, open_scheduler: Open) -> None:
        add(engine, expression="@reboot")
        one, other = open_scheduler(), open_scheduler()
        entries = engine.cron.entries()
        other._engine.entries = lambda: entries  # it has read before the first one ran

        one._reboot_at, other._reboot_at = NOW, NOW + SECOND
        one._start_reboots(NOW)
        other._start_reboots(NOW + SECOND)

        assert times(engine) == [NOW]


def test_history_is_pruned_by_the_scheduler_itself(engine: Engine, scheduler: Scheduler) -> None:
    add(engine)
    settle(scheduler, NOW + MINUTE)

    scheduler._pruned = -math.inf  # long ago, also on a machine that has just started
    settle(scheduler, NOW + MINUTE + scheduler_module.HISTORY + SECOND)

    assert minutes(1)[0] not in times(engine)


def test_the_jobs_of_another_store_have_no_entries_here(engine: Engine, open_scheduler: Open) -> None:
    elsewhere = Scheduler(engine.open_cron(), store="postgresql:elsewhere")

    elsewhere.run_once(now=NOW)
    elsewhere.on_stop()

    assert not [entry for entry in engine.cron.entries() if entry.code is not None]


def test_t23_b57_a_loop_that_hangs_shows_in_the_health_of_its_store(engine: Engine, open_scheduler: Open) -> None:
    """Also of ``runcron``, which has no leader that tells of it."""
    add(engine, now=None)
    assert crontab_of(engine) == [False]
    scheduler = open_scheduler(read_code=True)

    scheduler.run_once(now=datetime.now(UTC) - 10 * MINUTE)  # and nothing since
    assert crontab_of(engine) == [False]

    scheduler._declarations._declared = float("-inf")
    scheduler.run_once()
    assert crontab_of(engine) == [True]
    assert scheduler.last_run is not None


def crontab_of(engine: Engine) -> list[bool]:
    return [finding.is_ok for finding in judge(engine.health()) if finding.name == "crontab"]


class TestUniqueTasks:
    """What ``unique`` of a task says holds for the jobs of its entries too."""

    def complete(self, worker: Roles, me: UUID, now: datetime) -> None:
        acks = [Ack(job.id, job.claim, JobState.COMPLETED) for job in worker.fetch("default", 9, me, now=now)]
        worker.ack(acks, now=now)

    @pytest.mark.parametrize("unique", [tasks.throttled, tasks.at_most_hourly])
    def test_t50_a_period_holds_beyond_the_end_of_the_job(self, engine, scheduler, worker, me, unique) -> None:
        add(engine, task=unique.module_path, args=())

        for minute in range(1, 63):
            now = NOW + minute * MINUTE
            settle(scheduler, now)
            self.complete(worker, me, now)

        outcomes = [outcome for _, outcome in ticks(engine)]
        assert [place for place, outcome in enumerate(outcomes, 1) if outcome == "enqueued"] == [1, 61]
        assert set(outcomes) == {"enqueued", "skipped: duplicate"}

    def test_t50_a_completed_job_holds_its_key_where_the_scope_says_so(self, engine, scheduler, worker, me) -> None:
        add(engine, task=tasks.once.module_path, args=())

        for minute in range(1, 4):
            settle(scheduler, NOW + minute * MINUTE)
            self.complete(worker, me, NOW + minute * MINUTE)

        assert [outcome for _, outcome in ticks(engine)] == ["enqueued", *["skipped: duplicate"] * 2]

    def test_t50_a_time_that_comes_while_the_job_runs_is_followed_up(self, engine, scheduler, worker, me) -> None:
        add(engine, task=tasks.followed.module_path, args=())
        settle(scheduler, NOW + MINUTE)
        [job] = worker.fetch("default", 9, me, now=NOW + MINUTE)

        for minute in (2, 3):
            settle(scheduler, NOW + minute * MINUTE)
        assert [outcome for _, outcome in ticks(engine)] == ["enqueued", "enqueued", "skipped: duplicate"]
        worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)], now=NOW + 4 * MINUTE)

        [next] = worker.fetch("default", 9, me, now=NOW + 4 * MINUTE)
        assert next.id == history(engine)[1].job_id

    def test_t50_a_job_that_waits_takes_the_newest_arguments(self, engine, scheduler) -> None:
        for number in (1, 2):
            add(engine, f"entry {number}", task=tasks.replaced.module_path, args=(number,))
        settle(scheduler, NOW + MINUTE)

        assert [job.args for job in jobs(engine)] == [[2]]
        assert [ticks(engine, f"entry {number}")[0][1] for number in (1, 2)] == ["enqueued", "skipped: duplicate"]

    def test_t50_debounce_puts_the_job_off(self, engine, scheduler) -> None:
        add(engine, task=tasks.debounced.module_path)
        for minute in (1, 2, 3):
            settle(scheduler, NOW + minute * MINUTE)

        [job] = jobs(engine)
        assert (job.state, job.scheduled_at) == ("scheduled", NOW + 8 * MINUTE)

    def test_t50_a_run_by_hand_obeys_too(self, engine, scheduler, worker, me) -> None:
        add(engine, task=tasks.throttled.module_path, args=())
        settle(scheduler, NOW + MINUTE)
        self.complete(worker, me, NOW + MINUTE)
        entry = read(engine)

        ticked = engine.cron.run(entry, new_job(entry, {}), rule=rule_for(entry), now=NOW + 2 * MINUTE)

        assert (ticked.outcome, ticked.reason) == ("skipped", "duplicate")
