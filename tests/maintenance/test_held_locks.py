"""What the loops of maintenance do while transactions of the application hold locks and do not end.

Each loop is run once, in the thread that holds the locks: one that waited would wait for itself. A wait that is cut short
raises ``EngineBusy`` inside, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.utils import DEFAULT_DB_ALIAS
from django.utils import timezone

from djqueue.engines.postgres import PostgresEngine, follow_ups, session
from djqueue.exceptions import EngineBusy
from djqueue.jobs.records import Ack, NewJob, PruneRule
from djqueue.jobs.states import FINAL_STATES, JobState
from djqueue.maintenance.leader import Leader
from djqueue.maintenance.lifeline import Lifeline, Lost
from djqueue.maintenance.pruner import Pruner
from djqueue.maintenance.relay import Relay
from djqueue.maintenance.scheduler import Scheduler
from djqueue.models import CronEntry, FinishedJob, Job, OutboxRow, UniqueKey, Worker
from djqueue.outbox.rows import Outbox
from tests.engines.test_unique import FOLLOW_UP, WINDOW
from tests.maintenance.test_scheduler import NOW, add, read, ticks

pytestmark = pytest.mark.django_db(transaction=True)

EARLIER = timedelta(hours=2)
Verb = Callable[[PostgresEngine], object]


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


@pytest.fixture
def busy() -> Iterator[list[str]]:
    """Collects the waits that were cut short."""
    seen: list[str] = []

    def note(text: str) -> EngineBusy:
        seen.append(text)
        return EngineBusy(text)

    with mock.patch.object(session, "EngineBusy", note), mock.patch.object(session, "_TRIES", 1):
        yield seen


@pytest.fixture
def maintenance(engine: PostgresEngine) -> Iterator[Any]:
    with engine.open_maintainer() as own:
        yield own


@contextmanager
def held(change: Callable[[], object], *, commit: bool = False) -> Iterator[None]:
    """Hold what a change of the application's locks, and end it in the one way or the other."""
    with transaction.atomic():
        change()
        yield
        transaction.set_rollback(not commit)


def stored(engine: PostgresEngine, **fields: Any) -> int:
    [job] = engine.insert([NewJob("tests.task", **fields)], now=fields.pop("now", None))
    return job.id


def states(*ids: int) -> list[str | None]:
    found = dict(Job.objects.values_list("id", "state")) | dict(FinishedJob.objects.values_list("id", "state"))
    return [found.get(id) for id in ids]


HOLDS = {
    "cancel": lambda engine, id: engine.cancel([id]),
    "discard": lambda engine, id: engine.discard([id]),
    "delete": lambda engine, id: engine.delete([id]),
    "retry": lambda engine, id: engine.retry([id]),
    "lock": lambda engine, id: list(Job.objects.select_for_update().filter(id=id)),
}


@pytest.mark.parametrize("verb", HOLDS)
def test_t43_the_stager_passes_over_a_due_job_that_an_open_transaction_holds(engine, maintenance, busy, verb):
    ids = [stored(engine, delay=timedelta(seconds=5)) for _ in range(2)]
    Job.objects.update(scheduled_at=timezone.now() - EARLIER)

    with held(lambda: HOLDS[verb](engine, ids[0])):
        assert maintenance.stage().count == 1
        assert states(ids[1]) == ["available"]

    maintenance._stage_all_at = 0.0  # its listener was woken
    assert maintenance.stage().count == 1
    assert (states(*ids), busy) == (["available"] * 2, [])


def test_t44_an_uncommitted_holder_of_a_key_delays_its_follow_up_alone(engine, maintenance, worker, busy, me):
    """The holder has ended, another transaction takes its key: an index makes whoever wants it wait for that commit."""
    for key in ("held", "free"):
        engine.insert([NewJob("tests.task", unique_key=key)], rule=FOLLOW_UP)
    first = {job.id: job for job in worker.fetch("default", 9, me)}
    next = {
        key: engine.insert([NewJob("tests.task", unique_key=key)], rule=FOLLOW_UP)[0].id for key in ("held", "free")
    }
    with mock.patch("djqueue.engines.postgres.fetcher.release", return_value=set()):
        worker.ack([Ack(job.id, job.claim, JobState.COMPLETED) for job in first.values()])
    due = stored(engine, delay=timedelta(seconds=5))
    Job.objects.filter(id=due).update(scheduled_at=timezone.now() - EARLIER)

    with held(lambda: Job.objects.create(task="tests.task", unique_key="held", ready_at=timezone.now())):
        maintenance.stage()
        assert states(next["held"], next["free"], due) == ["suspended", "available", "available"]
        assert len(busy) == 2  # once with all of them, once by itself
        maintenance.stage()
        assert len(busy) == 2  # it is left alone for a while

    maintenance._taken_keys.clear()
    maintenance.stage()
    assert states(next["held"]) == ["available"]


def test_t44_an_ack_does_not_wait_for_an_uncommitted_holder_of_its_key(engine, worker, busy, me):
    engine.insert([NewJob("tests.task", unique_key="k")], rule=FOLLOW_UP)
    [job] = worker.fetch("default", 1, me)
    [next] = engine.insert([NewJob("tests.task", unique_key="k")], rule=FOLLOW_UP)
    real = follow_ups.released

    def taken_meanwhile(session: Any, keys: Any, now: Any) -> set[str]:
        Job.objects.create(task="tests.task", unique_key="k", ready_at=timezone.now())
        return real(session, keys, now)

    with mock.patch.object(follow_ups, "released", taken_meanwhile), held(lambda: None):
        assert worker.ack([Ack(job.id, job.claim, JobState.COMPLETED)]).accepted == {job.id}

    assert len(busy) == 1
    worker.stage()
    assert states(next.id) == ["available"]


@pytest.mark.parametrize("verb", ["cancel", "lock"])
@pytest.mark.parametrize("is_reported", [True, False])
def test_t43_the_lifeline_rescues_the_rest_and_comes_back_for_a_job_that_is_held(
    engine, maintenance, worker, busy, register, verb, is_reported
):
    dead, other = register(), register()
    ids = [stored(engine) for _ in range(3)]
    claims = {job.id: job.claim for job in [*worker.fetch("default", 2, dead), *worker.fetch("default", 1, other)]}
    silent = {} if is_reported else {dead: 0, other: 0}
    leader = SimpleNamespace(is_leader=not is_reported, term=1)
    lifeline = Lifeline(maintenance, leader, silent=lambda: silent, dead=lambda: [dead, other])  # type: ignore[arg-type]
    if is_reported:
        for one in (dead, other):
            lifeline.report(Lost(one, claims, "died"))

    with held(lambda: HOLDS[verb](engine, ids[0])):
        lifeline.run_once()
        assert states(*ids)[1:] == ["available"] * 2
        assert not lifeline.has_reports  # a successor of the worker may start

    silent.clear()
    lifeline.run_once()
    assert states(*ids) == ["available"] * 3
    # As for the others: it had begun, as the report says, or nobody knows.
    job = engine.get(ids[0])
    assert (job.attempt, job.meta) == ((1, {}) if is_reported else (0, {"lost": 1}))
    assert busy == []


def test_t43_a_worker_whose_row_is_held_does_not_keep_others_from_being_rescued(
    engine, maintenance, worker, busy, register
):
    dead, other = register(), register()
    ids = [stored(engine) for _ in range(2)]
    for one in (dead, other):
        worker.fetch("default", 1, one)
    lifeline = Lifeline(
        maintenance,
        SimpleNamespace(is_leader=True, term=1),  # type: ignore[arg-type]
        silent=lambda: {dead: 0, other: 0},
        dead=list,
    )

    with held(lambda: list(Worker.objects.select_for_update().filter(id=dead))):
        lifeline.run_once()
        assert states(*ids) == ["executing", "available"]

    lifeline.run_once()
    assert states(*ids) == ["available"] * 2
    assert len(busy) == 1


@pytest.mark.parametrize("verb", ["retry", "delete", "lock"])
def test_t43_the_pruner_passes_over_finished_jobs_that_are_held(engine, maintenance, busy, verb):
    ids = [stored(engine) for _ in range(2)]
    engine.cancel(ids)
    FinishedJob.objects.update(finished_at=timezone.now() - EARLIER)
    pruner = Pruner(maintenance, [PruneRule(state, timedelta(0)) for state in FINAL_STATES], is_leader=lambda: True)

    def hold() -> None:
        if verb == "lock":
            list(FinishedJob.objects.select_for_update().filter(id=ids[0]))
        else:
            HOLDS[verb](engine, ids[0])

    with held(hold):
        pruner.run_once()
        assert FinishedJob.objects.filter(id=ids[1]).count() == 0

    pruner.run_once()
    assert (FinishedJob.objects.count(), busy) == (0, [])


def test_t43_the_pruner_passes_over_unique_keys_that_are_held(engine, maintenance, busy):
    for key in ("held", "free"):
        [job] = engine.insert([NewJob("tests.task", unique_key=key)], rule=WINDOW)
        engine.discard([job.id])
    UniqueKey.objects.update(expires_at=timezone.now() - EARLIER)

    with held(lambda: engine.insert([NewJob("tests.task", unique_key="held")], rule=WINDOW)):
        assert maintenance.prune_keys() == 1

    assert maintenance.prune_keys() == 1
    assert busy == []


def test_t43_the_lead_is_taken_and_renewed_while_jobs_queues_and_entries_are_held(engine, maintenance, busy):
    add(engine)
    id = stored(engine)
    leader = Leader(maintenance, uuid4())

    def hold() -> None:
        engine.pause("default")
        engine.cancel([id])
        CronEntry.objects.update(pause_reason="edited")

    with held(hold):
        leader.run_once()
        leader.run_once()
        assert leader.is_leader
    assert busy == []


def change(engine: PostgresEngine, **values: Any) -> None:
    entry = read(engine, "held")
    assert engine.cron.change(entry, entry.definition, code=None, **{"is_paused": False, **values})


EDITS: dict[str, Verb] = {
    "pause": lambda engine: change(engine, is_paused=True),
    "edit in the admin": lambda engine: CronEntry.objects.get(name="held").save(),
    "remove": lambda engine: engine.cron.remove(read(engine, "held")),
    "lock": lambda engine: list(CronEntry.objects.select_for_update().filter(name="held")),
}


class TestScheduler:
    @pytest.fixture
    def scheduler(self, engine: PostgresEngine, open_scheduler: Callable[..., Scheduler]) -> Scheduler:
        add(engine, "held")
        add(engine, "other")
        scheduler = open_scheduler()
        scheduler.run_once(now=NOW)
        return scheduler

    @pytest.mark.parametrize("edit", EDITS)
    def test_t43_an_entry_that_is_held_delays_no_other(self, engine, scheduler, busy, edit):
        at = NOW + timedelta(seconds=40)
        with held(lambda: EDITS[edit](engine)):
            scheduler.run_once(now=at)
            scheduler.run_once(now=at)
            assert [outcome for _, outcome in ticks(engine, "other")] == ["enqueued"]

        scheduler.run_once(now=at)
        assert [outcome for _, outcome in ticks(engine, "held")] == ["enqueued"]
        assert busy == []

    @pytest.mark.parametrize("edit", EDITS)
    def test_t43_neither_when_it_is_not_planned_yet(self, engine, scheduler, busy, edit):
        CronEntry.objects.update(next_at=None)
        with held(lambda: EDITS[edit](engine)):
            scheduler.run_once(now=NOW)
            assert read(engine, "other").next_at is not None

        scheduler.run_once(now=NOW)
        assert read(engine, "held").next_at is not None
        assert busy == []

    def test_t43_a_run_by_hand_in_an_open_transaction_delays_nothing(self, engine, scheduler, busy):
        with held(lambda: engine.cron.run(read(engine, "held"), NewJob("tests.task")), commit=True):
            scheduler.run_once(now=NOW + timedelta(seconds=40))

        assert [outcome for _, outcome in ticks(engine, "held")] == ["enqueued"] * 2
        assert busy == []

    def test_t43_a_job_in_its_way_that_is_held_delays_its_entry_alone(self, engine, open_scheduler, busy):
        add(engine, "held", overlap="cancel_running")
        add(engine, "other")
        scheduler = open_scheduler()
        scheduler.run_once(now=NOW)
        first, second = NOW + timedelta(seconds=40), NOW + timedelta(seconds=100)
        scheduler.run_once(now=first)
        [tick] = engine.cron.ticks(read(engine, "held"))

        with held(lambda: engine.cancel([tick.job_id])):
            scheduler.run_once(now=second)
            scheduler.run_once(now=second)
            assert len(ticks(engine, "other")) == 2
            assert len(busy) == 1  # then it is left alone for a moment

        scheduler._aside.clear()
        scheduler.run_once(now=second)
        assert len(ticks(engine, "held")) == 2

    def test_t44_an_uncommitted_twin_of_its_job_delays_its_entry_alone(self, engine, scheduler, busy):
        real = scheduler._job
        at = NOW + timedelta(seconds=40)

        def unique(entry: Any, nominal_at: Any) -> Any:
            return real(entry, nominal_at)._replace(unique_key="k" if entry.name == "held" else None)

        with mock.patch.object(scheduler, "_job", unique):
            with held(lambda: engine.insert([NewJob("tests.task", unique_key="k")])):
                scheduler.run_once(now=at)
                scheduler.run_once(now=at)
                assert [outcome for _, outcome in ticks(engine, "other")] == ["enqueued"]
                assert len(busy) == 1

            scheduler._aside.clear()
            scheduler.run_once(now=at)
        assert [outcome for _, outcome in ticks(engine, "held")] == ["enqueued"]

    def test_t43_old_ticks_that_are_held_stay_and_the_others_go(self, engine, scheduler, busy):
        scheduler.run_once(now=NOW + timedelta(seconds=40))

        with held(lambda: engine.cron.remove(read(engine, "held"))), engine.open_cron() as cron:
            assert cron.prune(timedelta(0), now=NOW + EARLIER) == 1
        assert busy == []

    @pytest.mark.parametrize("is_there", [True, False])
    def test_t43_an_entry_of_the_code_that_is_held_is_brought_in_later(self, engine, open_scheduler, busy, is_there):
        scheduler = open_scheduler(read_code=True)
        names = ["weekly-report", "at-start"]
        if is_there:
            scheduler.run_once(now=NOW)
            CronEntry.objects.update(code={"task": "tests.crontab.tasks.report", "expression": "0 5 * * mon"})
            scheduler._is_synchronised = False

            def hold() -> object:
                return list(CronEntry.objects.select_for_update().filter(name="weekly-report"))
        else:

            def hold() -> object:
                return add(engine, "weekly-report")

        with held(hold):
            scheduler.run_once(now=NOW)
            assert CronEntry.objects.filter(name="at-start").exists()
        assert len(busy) == 1

        scheduler.run_once(now=NOW)
        entries = {entry.name: entry for entry in engine.cron.entries()}
        assert [entries[name].code is not None for name in names] == [True, True]
        assert entries["weekly-report"].code.expression == "0 6 * * mon"

    @pytest.mark.parametrize("edit", ["pause", "lock"])
    def test_t43_what_is_due_at_a_start_and_held_runs_when_it_is_free(self, engine, open_scheduler, busy, edit):
        for name in ("held", "other"):
            add(engine, name, "@reboot")
        scheduler = open_scheduler()
        scheduler._reboot_at = NOW

        with held(lambda: EDITS[edit](engine)):
            scheduler.run_once(now=NOW)
            assert [outcome for _, outcome in ticks(engine, "other")] == ["enqueued"]

        scheduler.run_once(now=NOW)
        scheduler.run_once(now=NOW)
        assert [[outcome for _, outcome in ticks(engine, name)] for name in ("held", "other")] == [["enqueued"]] * 2
        assert busy == []


def test_t43_the_relay_passes_over_rows_that_are_held(busy):
    rows = [OutboxRow.objects.create(backend="b", text=text) for text in ("held", "free")]
    outbox = Outbox("b", DEFAULT_DB_ALIAS)
    with mock.patch.object(Relay, "_send", return_value=True):
        relay = Relay(mock.Mock(), [outbox], is_leader=lambda: True, age=timedelta(0))
        with held_elsewhere(lambda execute: execute("SELECT FROM djqueue_outboxrow WHERE text = 'held' FOR UPDATE")):
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = 1")
            relay.run_once()
            assert [row.pk for row in OutboxRow.objects.all()] == [rows[0].pk]

        relay.run_once()
    connection.close()
    assert not OutboxRow.objects.exists()


@contextmanager
def held_elsewhere(change: Callable[[Callable[[str], object]], object]) -> Iterator[None]:
    from djqueue.engines.postgres.connection import connect

    with connect(DEFAULT_DB_ALIAS, "application") as other, other.transaction(force_rollback=True):
        change(other.execute)
        yield


def test_t43_a_table_that_is_locked_is_an_error_within_a_moment_and_no_wait(engine, maintenance, busy):
    """As a migration of the application's does it."""
    pruner = Pruner(maintenance, [PruneRule(state, timedelta(0)) for state in FINAL_STATES], is_leader=lambda: True)

    def lock() -> None:
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE djqueue_job, djqueue_finishedjob, djqueue_leader, djqueue_worker")

    def once(step: Callable[[], object]) -> None:
        with pytest.raises(EngineBusy):
            step()

    with held(lock):
        for step in (
            maintenance.stage,
            maintenance.rescue_ownerless,
            lambda: maintenance.rescue([uuid4()]),
            lambda: maintenance.bury({uuid4(): None}),
            lambda: maintenance.deregister([uuid4()]),
            lambda: maintenance.elect(uuid4(), 5),
            lambda: maintenance.resign(uuid4()),
            pruner.run_once,
        ):
            once(step)
    assert len(busy) == 8
