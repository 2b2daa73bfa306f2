"""Races of workflows with a forced order: connections that stop between the statements of an ack, a link or a count."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest
from django.db import connection, connections

from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.engine import PostgresEngine
from djqueue.engines.postgres.statements import sql
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.flows import FlowJob, FlowKind, NewFlow
from djqueue.jobs.records import NewJob
from djqueue.jobs.states import JobState
from djqueue.models import FlowCount, Job
from tests.engines.flow_audit import audit
from tests.engines.flow_steps import (
    ANY_END,
    SUCCESS,
    Stepwise,
    after,
    end,
    of_flow,
    outcome,
    run,
    states,
    stored,
    workflow,
)
from tests.engines.test_races import LONG, background, in_thread, wait_until_somebody_is_blocked  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])


@pytest.fixture
def engine(postgres: PostgresEngine) -> PostgresEngine:
    return postgres


@pytest.fixture
def sessions(engine: PostgresEngine) -> Iterator[tuple[Stepwise, Stepwise]]:
    """Two connections that stop between a statement and its commit."""
    with connect(engine.alias, "race") as one, connect(engine.alias, "race") as two:
        one.autocommit = two.autocommit = False
        yield Stepwise(one), Stepwise(two)


@pytest.fixture
def behind(background):  # noqa: F811
    """Runs a function in another thread and returns its future once it waits for a lock."""

    def start(function, *args):
        future = background.submit(function, *args)
        wait_until_somebody_is_blocked()
        return future

    return start


def settled(worker) -> None:
    worker.settle()
    audit()


def in_silence(engine, deps) -> int:
    """Store a job with these dependencies, whose links do not take effect yet, as when the process died after its commit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("djqueue.engines.postgres.flows.insert.settle_after_commit", lambda *args, **kwargs: None)
        return engine.insert_flow([], [FlowJob(NewJob("tests.task"), None, deps)]).job_ids[0]


class TestLastDependencies:
    def test_two_last_acks_release_once(self, engine, worker, me, sessions, behind):
        one, two = sessions
        flow = workflow(engine, [], [], after(0, 1))
        first, second = worker.fetch("default", 2, me)
        ends = one.ack(first)
        others = two.ack(second)
        one.release(ends)

        released = behind(two.release, others)
        one.commit()
        released.result(LONG)
        two.commit()

        assert states(flow.job_ids)[2] == "available"
        assert (one.after.queues, two.after.queues) == (set(), {"default"})
        settled(worker)

    def test_the_second_still_waits_when_the_first_is_undone(self, engine, worker, me, sessions, behind):
        one, two = sessions
        flow = workflow(engine, [], [], after(0, 1))
        first, second = worker.fetch("default", 2, me)
        one.release(one.ack(first))
        others = two.ack(second)

        released = behind(two.release, others)
        one.rollback()
        released.result(LONG)
        two.commit()

        assert (states(flow.job_ids)[2], Job.objects.get(id=flow.job_ids[2]).pending) == ("suspended", 1)
        end(worker, [first])
        assert states(flow.job_ids)[2] == "available"
        settled(worker)

    def test_acks_without_a_flow_meet_at_the_dependent_alone(self, engine, worker, me, sessions, behind):
        one, two = sessions
        jobs = [FlowJob(NewJob("tests.task"), None, up) for up in ([], [], after(0, 1))]
        flow = engine.insert_flow([], jobs)
        first, second = worker.fetch("default", 2, me)
        one.release(one.ack(first))
        others = two.ack(second)

        released = behind(two.release, others)
        one.commit()
        released.result(LONG)
        two.commit()

        assert states(flow.job_ids)[2] == "available"
        settled(worker)

    @pytest.mark.parametrize("is_good_first", [True, False])
    def test_one_completes_while_the_other_is_discarded(self, engine, worker, me, sessions, behind, is_good_first):
        flow = workflow(engine, [], [], after(0, 1), after(2))
        good, bad = worker.fetch("default", 2, me)
        steps = [(good, JobState.COMPLETED), (bad, JobState.DISCARDED)]
        [(earlier, how), (later, other)] = steps if is_good_first else steps[::-1]
        one, two = sessions
        ends, others = one.ack(earlier, how), two.ack(later, other)
        one.release(ends)

        released = behind(two.release, others)
        one.commit()
        released.result(LONG)
        two.commit()

        assert states(flow.job_ids)[2:] == ["cancelled", "cancelled"]
        settled(worker)

    def test_crossing_dependents_do_not_deadlock(self, engine, worker, me, sessions, behind):
        one, two = sessions
        flow = workflow(engine, [], [], after(0, 1), after(1, 0))
        first, second = worker.fetch("default", 2, me)
        ends, others = one.ack(first), two.ack(second)
        one.release(ends)

        released = behind(two.release, others)
        one.commit()
        released.result(LONG)
        two.commit()

        assert states(flow.job_ids)[2:] == ["available", "available"]
        settled(worker)

    def test_an_ack_that_is_undone_leaves_nothing(self, engine, worker, me, sessions):
        one, _ = sessions
        flow = workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)
        one.release(one.ack(job))

        one.rollback()

        assert states(flow.job_ids) == ["executing", "suspended"]
        settled(worker)

    def test_a_stale_ack_releases_nothing(self, engine, worker, me):
        flow = workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)
        worker.rescue([me], ran={})

        assert end(worker, [job]) == set()

        assert states(flow.job_ids) == ["available", "suspended"]
        settled(worker)


class TestLateLinks:
    def test_an_ack_that_waits_for_a_link_releases(self, engine, worker, me, sessions, behind):
        one, _ = sessions
        workflow(engine, [])
        [job] = worker.fetch("default", 1, me)
        late = in_silence(engine, [stored(job.id)])
        one.link()

        acked = behind(end, worker, [job])
        one.commit()

        assert acked.result(LONG) == {job.id}
        assert states([late]) == ["available"]
        settled(worker)

    @pytest.mark.parametrize("is_undone", [False, True])
    def test_a_link_that_waits_for_an_ack(self, engine, worker, me, sessions, behind, is_undone):
        one, two = sessions
        workflow(engine, [])
        [job] = worker.fetch("default", 1, me)
        ends = one.ack(job)
        late = in_silence(engine, [stored(job.id)])

        linked = behind(two.link)
        one.release(ends)
        one.rollback() if is_undone else one.commit()
        linked.result(LONG)
        two.commit()

        if is_undone:
            assert states([late]) == ["suspended"]
            end(worker, [job])
        assert states([late]) == ["available"]
        settled(worker)

    def test_a_plain_ack_older_than_the_link_leaves_the_job_to_the_ack_of_flows(
        self, engine, worker, me, sessions, behind
    ):
        one, _ = sessions
        engine.insert_one(NewJob("tests.task"))
        [job] = worker.fetch("default", 1, me)
        assert (job.flow_id, job.is_awaited) == (None, None)
        late = in_silence(engine, [stored(job.id)])
        one.link()

        acked = behind(end, worker, [job])
        one.commit()

        assert acked.result(LONG) == {job.id}
        assert states([late]) == ["available"]
        settled(worker)

    def test_a_link_to_an_end_that_has_had_no_effect_yet_leaves_it_to_the_event(
        self, engine, worker, me, sessions, monkeypatch
    ):
        one, _ = sessions
        workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)
        monkeypatch.setattr("djqueue.engines.postgres.rescue.settle_on", lambda *args: None)
        Job.objects.filter(id=job.id).update(max_attempts=1)
        worker.rescue([me])
        late = in_silence(engine, [stored(job.id, ANY_END)])

        one.link()
        one.commit()

        assert states([late]) == ["suspended"]
        worker.settle()
        assert states([late]) == ["available"]
        settled(worker)

    def test_a_link_waits_for_an_event_under_way_and_acts_itself(
        self, engine, worker, me, sessions, behind, monkeypatch
    ):
        one, two = sessions
        workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)
        monkeypatch.setattr("djqueue.engines.postgres.rescue.settle_on", lambda *args: None)
        Job.objects.filter(id=job.id).update(max_attempts=1)
        worker.rescue([me])
        late = in_silence(engine, [stored(job.id, ANY_END)])
        one.release(one.take_ends())

        linked = behind(two.link)
        one.commit()
        linked.result(LONG)
        two.commit()

        assert states([late]) == ["available"]
        settled(worker)

    def test_a_dependent_that_is_linked_during_a_cascade_is_stopped_too(self, engine, worker, me, sessions, behind):
        one, two = sessions
        flow = workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)
        late = in_silence(engine, [stored(flow.job_ids[1])])
        ends = one.ack(job, JobState.DISCARDED)
        two.link()

        released = behind(one.release, ends)
        two.commit()
        released.result(LONG)
        one.commit()
        worker.settle()

        assert states([flow.job_ids[1], late]) == ["cancelled", "cancelled"]
        settled(worker)


class TestCounts:
    @pytest.fixture
    def left_behind(self, monkeypatch):
        """No ack adds up its counts."""
        monkeypatch.setattr("djqueue.engines.postgres.fetcher.settle_on", lambda *args: None)

    def counts(self, worker, jobs) -> list[int]:
        known = set(FlowCount.objects.values_list("id", flat=True))
        end(worker, jobs)
        return sorted(set(FlowCount.objects.values_list("id", flat=True)) - known)

    def test_the_last_two_counts_of_a_batch_finish_it_once(self, engine, worker, me, sessions, behind, left_behind):
        one, two = sessions
        flow = workflow(engine, [], [], [], [], callbacks=[SUCCESS])
        [id] = flow.flow_ids
        jobs = worker.fetch("default", 4, me)
        first, second = self.counts(worker, jobs[:2]), self.counts(worker, jobs[2:])
        assert one.fold(first) == [(id, False)]

        folded = behind(two.fold, second)
        one.commit()
        assert folded.result(LONG) == [(id, True)]
        assert len(two.finish(id)) == 1
        two.rollback()

        worker.settle()
        assert states(flow.job_ids[4:]) == ["available"]
        settled(worker)

    def test_the_last_two_parts_of_a_batch_finish_it_once(self, engine, worker, me, sessions, behind, left_behind):
        one, two = sessions
        flows = [NewFlow(FlowKind.BATCH), NewFlow(FlowKind.PART, whole=0), NewFlow(FlowKind.PART, whole=0)]
        jobs = [FlowJob(NewJob("tests.task"), place) for place in (1, 1, 2, 2)]
        flow = engine.insert_flow(flows, [*jobs, FlowJob(NewJob("tests.task"), None, [of_flow(0)])])
        whole, part, other = flow.flow_ids
        claimed = worker.fetch("default", 4, me)
        first, second = self.counts(worker, claimed[:2]), self.counts(worker, claimed[2:])
        assert (one.fold(first), two.fold(second)) == ([(part, True)], [(other, True)])
        assert (len(one.finish(part)), len(two.finish(other))) == (1, 1)
        one.whole(part)
        assert one.finish(whole) == []

        locked = behind(two.whole, other)
        one.commit()
        locked.result(LONG)
        assert len(two.finish(whole)) == 1
        two.rollback()

        worker.settle()
        assert states(flow.job_ids[4:]) == ["available"]
        settled(worker)

    def test_counts_that_were_left_behind_are_added_up_once(self, engine, worker, me, left_behind):
        flow = workflow(engine, [], [], callbacks=[SUCCESS])
        run(worker, me)

        worker.settle()
        worker.settle()

        assert states(flow.job_ids[2:]) == ["available"]
        settled(worker)

    def test_a_finish_that_waits_for_a_link_releases(self, engine, worker, me, sessions, behind, left_behind):
        one, _ = sessions
        flow = workflow(engine, [])
        run(worker, me)
        late = in_silence(engine, [stored(flow.flow_ids[0])])
        one.link()

        done = behind(worker.settle)
        one.commit()
        done.result(LONG)

        assert states([late]) == ["available"]
        settled(worker)

    def test_a_link_that_waits_for_a_finish_releases(self, engine, worker, me, sessions, behind, left_behind):
        one, two = sessions
        flow = workflow(engine, [])
        counts = self.counts(worker, worker.fetch("default", 1, me))
        late = in_silence(engine, [stored(flow.flow_ids[0])])
        one.fold(counts)
        one.finish(flow.flow_ids[0])

        linked = behind(two.link)
        one.commit()
        linked.result(LONG)
        two.commit()

        assert states([late]) == ["available"]
        settled(worker)


class TestControl:
    def test_a_request_for_a_suspended_job_does_not_hold_its_row(self, engine, worker, me, session_of):
        flow = workflow(engine, [], after(0))
        [job] = worker.fetch("default", 1, me)
        values = {"ids": [flow.job_ids[1]], "only": None, "by": "", "reason": "", "is_settling": False, "now": None}
        session_of.execute(sql("cancel"), values)

        assert end(worker, [job]) == {job.id}

        assert states(flow.job_ids) == ["completed", "available"]
        session_of.commit()
        worker.settle()
        assert states(flow.job_ids) == ["completed", "cancelled"]
        settled(worker)

    @pytest.fixture
    def session_of(self, sessions) -> psycopg.Connection:
        return sessions[0].session


SECONDS = 3.0


class TestAtRandom:
    def test_random_workflows_with_lost_connections_come_to_their_ends(self, engine, open_worker, register, background):  # noqa: F811
        stop = threading.Event()
        me = register()

        def work(seed: int) -> None:
            chance = random.Random(seed)
            worker, held = open_worker(), []
            while not stop.is_set() or held:
                try:
                    if not held:
                        held = worker.fetch("default", chance.choice([1, 3, 20]), me)
                        worker.settle() if not held else None
                        continue
                    part, held = held[:5], held[5:]
                    state = JobState.COMPLETED if chance.random() < 0.9 else JobState.DISCARDED
                    worker.ack([outcome(job, state) for job in part])
                except EngineUnavailable:
                    pass  # its connection was closed; a rescue takes the jobs back at the end

        def add(seed: int) -> None:
            chance = random.Random(seed)
            known: list[int] = []
            while not stop.is_set():
                try:
                    deps = []
                    for place in range(chance.choice([1, 2, 3, 5, 8])):
                        ups = chance.sample(range(place), min(place, chance.choice([0, 1, 2])))
                        deps.append(after(*ups, rule=chance.choice([SUCCESS, SUCCESS, ANY_END])))
                        if known and chance.random() < 0.1:
                            deps[-1].append(stored(chance.choice(known), chance.choice([SUCCESS, ANY_END])))
                    flow = workflow(engine, *deps, callbacks=[SUCCESS, ANY_END] if chance.random() < 0.3 else [])
                    known = [*known, *flow.job_ids, *flow.flow_ids][-60:]
                    if chance.random() < 0.3:
                        engine.cancel(chance.sample(known, min(3, len(known))))
                except (psycopg.Error, EngineUnavailable, connections[engine.alias].Database.Error, OSError):
                    connections[engine.alias].close()
                except Exception as error:
                    if "connection" not in str(error).lower() and "terminat" not in str(error).lower():
                        raise
                    connections[engine.alias].close()

        def kill() -> None:
            chance = random.Random(7)
            with connect(engine.alias, "killer") as session:
                while not stop.wait(chance.random() * 0.3):
                    session.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                        " AND pid <> pg_backend_pid() AND state <> 'idle' AND application_name LIKE 'djqueue worker%' LIMIT 1"
                    )

        tasks = [background.submit(work, seed) for seed in range(3)]
        tasks += [background.submit(in_thread(engine, partial(add, seed))) for seed in range(2)]
        tasks.append(background.submit(kill))
        time.sleep(SECONDS)  # they run for as long as this
        stop.set()
        for task in tasks:
            task.result(LONG)

        with open_worker() as worker:
            while True:
                worker.settle()
                worker.rescue([me], ran={})
                jobs = worker.fetch("default", 100, me)
                if not jobs:
                    break
                end(worker, jobs)
            worker.settle()
        audit()
        assert Job.objects.count() == 0
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM djqueue_finishedjob AS down JOIN djqueue_dependency AS d ON d.downstream_id = down.id"
                " JOIN djqueue_finishedjob AS up ON up.id = d.upstream_id WHERE down.attempt > 0 AND d.rule = 's'"
                " AND up.state <> 'completed'"
            )
            assert cursor.fetchone() == (0,)
