"""What every engine does with workflows and batches: the specification of ``djqueue/engines/protocol/flows.py``.

Each test says what holds for all stores. Effects that a store leaves to its stager are let happen by ``settle``.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from djqueue.exceptions import InvalidJob
from djqueue.jobs.flows import (
    SIGNAL_TASK,
    DependencyRule,
    FlowJob,
    FlowKind,
    NewFlow,
    OnFailure,
    Upstream,
    UpstreamKind,
)
from djqueue.jobs.records import Ack, ClaimedJob, NewJob, PruneRule
from djqueue.jobs.states import FINAL_STATES, JobState

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["djqueue"])

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SUCCESS, ANY_END, NO_RESULT, FAILURE = DependencyRule
WORKFLOW = NewFlow()
ENDS = ("completed", "discarded", "cancelled", "expired", "deleted", "operator-discarded", "rescued")


def after(place: int, rule: DependencyRule = SUCCESS) -> Upstream:
    """A dependency on a job of the same insert."""
    return Upstream(UpstreamKind.JOB, place, rule)


def of_flow(place: int, rule: DependencyRule = SUCCESS) -> Upstream:
    return Upstream(UpstreamKind.FLOW, place, rule)


def stored(id: int, rule: DependencyRule = SUCCESS) -> Upstream:
    return Upstream(UpstreamKind.ID, id, rule)


def job(*upstreams: Upstream, flow: int | None = 0, name: str = "", **fields) -> FlowJob:
    meta = f'{{"flow": {{"name": "{name}"}}}}' if name else "{}"
    return FlowJob(NewJob("tests.task", meta=meta, **fields), flow, upstreams)


class Flows:
    """An engine with a worker: runs the jobs of flows."""

    def __init__(self, engine, worker, me) -> None:
        self.engine, self.worker, self.me = engine, worker, me

    def insert(self, *jobs: FlowJob, flows=(WORKFLOW,), now=NOW):
        return self.engine.insert_flow(flows, jobs, now=now)

    def settle(self, now=NOW) -> None:
        """Let all effects happen that were left for the stager."""
        for _ in range(200):
            settled = self.worker.settle(now=now)
            if not (settled.events or settled.counts or settled.is_full):
                return
        raise AssertionError("It never settles.")

    def fetch(self, limit=100, now=NOW) -> list[ClaimedJob]:
        self.settle(now)
        return self.worker.fetch("default", limit, self.me, now=now)

    def ack(self, *jobs: ClaimedJob, state=JobState.COMPLETED, now=NOW, **fields) -> None:
        acks = [
            Ack(each.id, each.claim, state, flow_id=each.flow_id, is_awaited=each.is_awaited, **fields) for each in jobs
        ]
        assert self.worker.ack(acks, now=now).accepted == {each.id for each in jobs}
        self.settle(now)

    def run(self, *ids: int, state=JobState.COMPLETED, now=NOW, **fields) -> None:
        """Run these jobs, which must be all that are available."""
        claimed = self.fetch(now=now)
        assert [each.id for each in claimed] == list(ids)
        self.ack(*claimed, state=state, now=now, **fields)

    def end(self, id: int, how: str) -> None:
        """End an available job in one of the ways that there are."""
        if how == "deleted":
            self.engine.delete([id])
        elif how == "cancelled":
            self.engine.cancel([id], by="somebody", now=NOW)
        elif how == "operator-discarded":
            self.engine.discard([id], now=NOW)
        elif how == "rescued":
            claimed = self.fetch()
            assert [each.id for each in claimed] == [id]
            self.worker.rescue([self.me], now=NOW)
        else:
            state = {"completed": JobState.COMPLETED, "discarded": JobState.DISCARDED}.get(how, JobState.CANCELLED)
            self.run(id, state=state)
        self.settle()

    def state(self, id: int) -> str:
        self.settle()
        found = self.engine.get(id)
        return "deleted" if found is None else found.state.value

    def states(self, ids) -> list[str]:
        return [self.state(id) for id in ids]

    def numbers(self, id: int) -> tuple[int, int, int, int]:
        self.settle()
        flow = self.engine.flow(id)
        return flow.total, flow.completed, flow.cancelled, flow.discarded

    def is_finished(self, id: int) -> bool:
        self.settle()
        return self.engine.flow(id).finished_at is not None


@pytest.fixture
def flows(engine, worker, me) -> Flows:
    return Flows(engine, worker, me)


class TestOrder:
    def test_a_chain_runs_in_its_order(self, flows):
        inserted = flows.insert(job(), job(after(0)), job(after(1)))
        first, second, third = inserted.job_ids
        assert flows.states(inserted.job_ids) == ["available", "suspended", "suspended"]

        flows.run(first)
        flows.run(second)
        flows.run(third)

        flow = flows.engine.flow(inserted.flow_ids[0])
        assert (flow.total, flow.completed, flow.failed_at) == (3, 3, None)
        assert flow.finished_at is not None

    def test_ids_ascend_and_the_flow_has_one_of_its_own(self, flows):
        inserted = flows.insert(*[job() for _ in range(10)])

        assert list(inserted.job_ids) == sorted(set(inserted.job_ids))
        assert inserted.flow_ids[0] not in inserted.job_ids
        assert inserted.inserted_at == NOW
        assert not inserted.was_duplicate

    def test_a_fan_out_is_released_as_a_whole(self, flows):
        inserted = flows.insert(job(), *[job(after(0)) for _ in range(20)])

        flows.run(inserted.job_ids[0])

        assert [each.id for each in flows.fetch()] == list(inserted.job_ids[1:])

    def test_a_fan_in_is_released_once_after_the_last(self, flows):
        inserted = flows.insert(*[job() for _ in range(20)], job(*[after(place) for place in range(20)]))
        *parents, last = inserted.job_ids
        claimed = flows.fetch()
        assert [each.id for each in claimed] == parents

        for each in claimed[:-1]:
            flows.ack(each)
            assert flows.state(last) == "suspended"
        flows.ack(claimed[-1])

        flows.run(last)
        assert flows.fetch() == []

    def test_a_fan_in_is_released_once_when_all_end_in_one_ack(self, flows):
        inserted = flows.insert(*[job() for _ in range(20)], job(*[after(place) for place in range(20)]))

        flows.ack(*flows.fetch())

        flows.run(inserted.job_ids[-1])
        assert flows.fetch() == []

    def test_a_retried_attempt_is_not_an_end(self, flows):
        inserted = flows.insert(job(), job(after(0)))
        [claimed] = flows.fetch()

        flows.ack(claimed, state=JobState.RETRYABLE, error='{"exception": "ValueError"}')

        assert flows.states(inserted.job_ids) == ["available", "suspended"]
        flows.run(inserted.job_ids[0])
        assert flows.state(inserted.job_ids[1]) == "available"

    def test_a_stale_ack_releases_nothing(self, flows):
        inserted = flows.insert(job(), job(after(0)))
        [claimed] = flows.fetch()

        stale = Ack(claimed.id, claimed.claim - 1, JobState.COMPLETED, flow_id=claimed.flow_id, is_awaited=True)
        assert flows.worker.ack([stale], now=NOW).accepted == set()

        assert flows.state(inserted.job_ids[1]) == "suspended"
        assert flows.numbers(inserted.flow_ids[0]) == (2, 0, 0, 0)

    def test_a_claim_says_which_flow_counts_its_job(self, flows):
        inserted = flows.insert(job(), job(flow=None), job(after(0)))

        claimed = flows.fetch()

        assert [each.flow_id for each in claimed] == [inserted.flow_ids[0], None]
        assert [bool(each.is_awaited) for each in claimed] == [True, False]

    def test_jobs_in_no_flow_wait_for_each_other_too(self, flows):
        inserted = flows.insert(job(flow=None), job(after(0), flow=None), flows=())
        assert list(inserted.flow_ids) == []

        flows.run(inserted.job_ids[0])
        flows.run(inserted.job_ids[1])

    def test_a_large_flow_is_stored_and_runs(self, flows):
        """Large flows are stored in another way."""
        jobs = [job()]
        jobs += [job(after(0)) for _ in range(1500)]
        jobs += [job(*[after(place) for place in range(1, 1501)])]
        inserted = flows.insert(*jobs)
        assert len(inserted.job_ids) == 1502

        flows.run(inserted.job_ids[0])
        flows.run(*inserted.job_ids[1:101])
        claimed = flows.fetch(2000)
        assert [each.id for each in claimed] == list(inserted.job_ids[101:-1])
        flows.ack(*claimed)
        flows.run(inserted.job_ids[-1])

        assert flows.numbers(inserted.flow_ids[0]) == (1502, 1502, 0, 0)
        assert flows.is_finished(inserted.flow_ids[0])


class TestTimes:
    def test_a_suspended_job_with_a_time_is_scheduled_when_it_is_released(self, flows):
        due = NOW + timedelta(hours=1)
        inserted = flows.insert(job(), job(after(0), scheduled_at=due))
        flows.worker.stage(now=due + SECOND)
        assert flows.state(inserted.job_ids[1]) == "suspended"

        flows.run(inserted.job_ids[0])

        assert flows.state(inserted.job_ids[1]) == "scheduled"
        assert flows.engine.get(inserted.job_ids[1]).scheduled_at == due
        flows.worker.stage(now=due)
        assert flows.state(inserted.job_ids[1]) == "available"

    def test_a_delay_counts_from_the_release(self, flows):
        inserted = flows.insert(job(), job(after(0), delay=timedelta(minutes=5)))

        flows.run(inserted.job_ids[0], now=NOW + timedelta(hours=1))

        assert flows.state(inserted.job_ids[1]) == "scheduled"
        assert flows.engine.get(inserted.job_ids[1]).scheduled_at == NOW + timedelta(hours=1, minutes=5)

    def test_a_time_that_has_passed_makes_a_released_job_available(self, flows):
        inserted = flows.insert(job(), job(after(0), scheduled_at=NOW + SECOND))

        flows.run(inserted.job_ids[0], now=NOW + 2 * SECOND)

        assert flows.state(inserted.job_ids[1]) == "available"

    def test_a_job_without_upstreams_may_be_scheduled(self, flows):
        inserted = flows.insert(job(delay=timedelta(hours=1)))

        assert flows.states(inserted.job_ids) == ["scheduled"]


class TestRules:
    @pytest.mark.parametrize("rule", DependencyRule)
    @pytest.mark.parametrize("how", ENDS)
    def test_every_rule_meets_every_end(self, flows, rule, how):
        attempts = 1 if how == "rescued" else 20
        inserted = flows.insert(job(max_attempts=attempts), job(after(0, rule)))
        upstream, downstream = inserted.job_ids

        flows.end(upstream, how)

        is_met = {
            SUCCESS: how == "completed",
            ANY_END: True,
            NO_RESULT: True,
            FAILURE: how != "completed",
        }[rule]
        assert flows.state(downstream) == ("available" if is_met else "cancelled")
        if not is_met:
            error = flows.engine.get(downstream).errors[-1]
            state = {
                "expired": "cancelled",
                "operator-discarded": "discarded",
                "rescued": "discarded",
            }.get(how, how)
            assert error["exception"] == "djqueue.exceptions.DependencyFailed"
            assert str(upstream) in error["message"]
            assert state in error["message"]

    @pytest.mark.parametrize("how", ENDS)
    def test_every_end_is_counted(self, flows, how):
        inserted = flows.insert(job(max_attempts=1 if how == "rescued" else 20), job(after(0, ANY_END)))

        flows.end(inserted.job_ids[0], how)
        flows.run(inserted.job_ids[1])

        completed = 1 + (how == "completed")
        discarded = int(how in ("discarded", "operator-discarded", "rescued"))
        assert flows.numbers(inserted.flow_ids[0]) == (2, completed, 2 - completed - discarded, discarded)
        flow = flows.engine.flow(inserted.flow_ids[0])
        assert flow.finished_at is not None
        assert (flow.failed_at is None) == (how == "completed")

    def test_what_waits_for_a_stopped_job_is_stopped_too(self, flows):
        inserted = flows.insert(job(), *[job(after(place)) for place in range(20)])

        flows.end(inserted.job_ids[0], "discarded")

        assert set(flows.states(inserted.job_ids[1:])) == {"cancelled"}
        assert str(inserted.job_ids[19]) in flows.engine.get(inserted.job_ids[20]).errors[-1]["message"]
        assert flows.numbers(inserted.flow_ids[0]) == (21, 0, 20, 1)
        assert flows.is_finished(inserted.flow_ids[0])

    def test_a_stopped_job_is_an_end_for_other_rules(self, flows):
        inserted = flows.insert(job(), job(after(0)), job(after(1, FAILURE)), job(after(1, ANY_END)))

        flows.end(inserted.job_ids[0], "discarded")

        assert flows.states(inserted.job_ids) == ["discarded", "cancelled", "available", "available"]

    def test_a_job_that_one_upstream_stops_is_not_released_by_another(self, flows):
        inserted = flows.insert(job(), job(), job(after(0), after(1)))
        first, second = flows.fetch()

        flows.ack(first, state=JobState.DISCARDED)
        flows.ack(second)

        assert flows.state(inserted.job_ids[2]) == "cancelled"

    def test_a_good_and_a_bad_end_in_one_ack(self, flows):
        inserted = flows.insert(job(), job(), job(after(0), after(1)), job(after(0, ANY_END), after(1, ANY_END)))
        first, second = flows.fetch()

        acks = [
            Ack(each.id, each.claim, state, flow_id=each.flow_id, is_awaited=each.is_awaited)
            for each, state in ((first, JobState.COMPLETED), (second, JobState.DISCARDED))
        ]
        flows.worker.ack(acks, now=NOW)

        assert flows.states(inserted.job_ids[2:]) == ["cancelled", "available"]

    def test_of_two_dependencies_on_one_upstream_the_first_counts(self, flows):
        inserted = flows.insert(job(), job(after(0, ANY_END), after(0)))

        flows.end(inserted.job_ids[0], "discarded")

        assert flows.state(inserted.job_ids[1]) == "available"

    def test_an_operator_ends_a_suspended_job(self, flows):
        inserted = flows.insert(job(), *[job(after(0)) for _ in range(3)], job(after(1)))

        flows.engine.cancel([inserted.job_ids[1]], now=NOW)
        flows.settle()
        flows.engine.discard([inserted.job_ids[2]], now=NOW)
        flows.settle()
        flows.engine.delete([inserted.job_ids[3]])
        flows.settle()
        flows.run(inserted.job_ids[0])

        assert flows.states(inserted.job_ids) == ["completed", "cancelled", "discarded", "deleted", "cancelled"]
        assert flows.numbers(inserted.flow_ids[0]) == (5, 1, 3, 1)
        assert flows.fetch() == []

    def test_a_cancel_request_that_takes_a_failing_job_stops_what_waits_for_it(self, flows):
        inserted = flows.insert(job(), job(after(0)))
        [claimed] = flows.fetch()

        flows.engine.cancel([claimed.id], now=NOW)
        flows.ack(claimed, state=JobState.RETRYABLE, error='{"exception": "ValueError"}')

        assert flows.states(inserted.job_ids) == ["cancelled", "cancelled"]


class TestParts:
    def parted(self, flows, *rules, on_failure=OnFailure.GO_ON):
        """Two jobs in a part, and a job for each rule that waits for the part."""
        return flows.insert(
            job(flow=1),
            job(flow=1),
            *[job(of_flow(1, rule)) for rule in rules],
            flows=(NewFlow(on_failure=on_failure), NewFlow(FlowKind.PART, "group", whole=0)),
        )

    def test_a_part_is_an_upstream(self, flows):
        inserted = self.parted(flows, SUCCESS)
        first, second = flows.fetch()

        flows.ack(first)
        assert flows.state(inserted.job_ids[2]) == "suspended"
        flows.ack(second)

        flows.run(inserted.job_ids[2])
        assert flows.numbers(inserted.flow_ids[0]) == (3, 3, 0, 0)
        assert flows.numbers(inserted.flow_ids[1]) == (2, 2, 0, 0)
        assert flows.is_finished(inserted.flow_ids[0])

    def test_a_failed_part_stops_and_releases_at_its_end_and_its_first_failure_is_met_at_once(self, flows):
        inserted = self.parted(flows, SUCCESS, ANY_END, FAILURE)
        first, second = flows.fetch()

        flows.ack(first, state=JobState.DISCARDED)
        assert flows.states(inserted.job_ids[2:]) == ["suspended", "suspended", "available"]
        flows.ack(second)

        assert flows.states(inserted.job_ids[2:]) == ["cancelled", "available", "available"]

    def test_a_part_that_completes_stops_what_waits_for_its_failure(self, flows):
        inserted = self.parted(flows, FAILURE)

        flows.ack(*flows.fetch())

        assert flows.state(inserted.job_ids[2]) == "cancelled"

    def test_a_failure_in_a_part_is_one_of_the_whole(self, flows):
        inserted = self.parted(flows)
        first, second = flows.fetch()

        flows.ack(first, state=JobState.DISCARDED)
        flows.ack(second)

        whole = flows.engine.flow(inserted.flow_ids[0])
        assert whole.failed_at is not None
        assert whole.finished_at is not None

    def test_an_empty_flow_is_finished_and_releases_what_waits_for_it(self, flows):
        inserted = flows.insert(job(of_flow(1)), flows=(NewFlow(), NewFlow(FlowKind.PART, whole=0)))

        assert flows.is_finished(inserted.flow_ids[1])
        flows.run(inserted.job_ids[0])
        assert flows.is_finished(inserted.flow_ids[0])

    def test_a_running_job_adds_a_part_to_its_flow(self, flows):
        inserted = flows.insert(job(), job(of_flow(0, ANY_END), flow=None))
        [claimed] = flows.fetch()

        more = flows.insert(job(), flows=(NewFlow(FlowKind.PART, whole_id=inserted.flow_ids[0]),))
        flows.ack(claimed)

        assert not flows.is_finished(inserted.flow_ids[0])
        assert flows.numbers(inserted.flow_ids[0]) == (2, 1, 0, 0)
        flows.run(more.job_ids[0])
        assert flows.is_finished(inserted.flow_ids[0])
        assert flows.state(inserted.job_ids[1]) == "available"

    def test_a_finished_or_unknown_flow_takes_no_part(self, flows):
        inserted = flows.insert(job())
        flows.run(inserted.job_ids[0])
        flows.settle()

        for id in (inserted.flow_ids[0], 10**9):
            with pytest.raises(InvalidJob):
                flows.insert(job(), flows=(NewFlow(FlowKind.PART, whole_id=id),))
        assert flows.fetch() == []

    def test_the_first_failure_of_a_flow_may_cancel_its_rest(self, flows):
        inserted = flows.insert(
            *[job() for _ in range(5)], job(after(4)), flows=(NewFlow(on_failure=OnFailure.CANCEL),)
        )
        first, second = flows.fetch(2)

        flows.ack(first, state=JobState.DISCARDED)

        assert flows.states(inserted.job_ids) == ["discarded", "executing", *["cancelled"] * 4]
        assert [request.id for request in flows.worker.cancel_requested([second.id])] == [second.id]
        flows.ack(second)
        assert flows.numbers(inserted.flow_ids[0]) == (6, 1, 4, 1)
        assert flows.is_finished(inserted.flow_ids[0])


class TestBatches:
    def test_an_open_batch_grows_and_finishes_once_it_is_closed(self, flows):
        batch = flows.insert(flows=(NewFlow(FlowKind.BATCH, "import", is_open=True),)).flow_ids[0]
        for _ in range(3):
            flows.insert(*[job() for _ in range(4)], flows=(NewFlow(FlowKind.PART, whole_id=batch),))
        flows.ack(*flows.fetch())
        assert flows.numbers(batch) == (12, 12, 0, 0)
        assert not flows.is_finished(batch)

        assert flows.engine.close_flow(batch, now=NOW)

        assert flows.is_finished(batch)
        assert not flows.engine.close_flow(batch, now=NOW)
        assert not flows.engine.close_flow(10**9)

    def test_a_closed_batch_finishes_with_its_last_job(self, flows):
        inserted = flows.insert(job(), flows=(NewFlow(FlowKind.BATCH, is_open=True),))
        flows.engine.close_flow(inserted.flow_ids[0], now=NOW)
        assert not flows.is_finished(inserted.flow_ids[0])

        flows.run(inserted.job_ids[0])

        assert flows.is_finished(inserted.flow_ids[0])

    def test_callbacks_of_a_batch(self, flows):
        inserted = flows.insert(
            job(),
            job(),
            *[job(of_flow(0, rule), flow=None) for rule in (SUCCESS, ANY_END, FAILURE)],
            flows=(NewFlow(FlowKind.BATCH),),
        )
        first, second = flows.fetch()

        flows.ack(first, state=JobState.CANCELLED)
        assert flows.states(inserted.job_ids[2:]) == ["suspended", "suspended", "available"]
        flows.ack(second)
        assert flows.states(inserted.job_ids[2:]) == ["cancelled", "available", "available"]


class TestStoredUpstreams:
    def test_a_job_waits_for_a_plain_job_that_is_stored(self, flows):
        [plain] = flows.engine.insert([NewJob("tests.task")], now=NOW)
        inserted = flows.insert(job(stored(plain.id)))
        assert flows.states(inserted.job_ids) == ["suspended"]

        flows.run(plain.id)

        flows.run(inserted.job_ids[0])

    def test_a_job_waits_for_a_plain_job_that_executes(self, flows):
        [plain] = flows.engine.insert([NewJob("tests.task")], now=NOW)
        [claimed] = flows.fetch()
        inserted = flows.insert(job(stored(plain.id)), job(stored(plain.id, FAILURE)))
        assert flows.states(inserted.job_ids) == ["suspended", "suspended"]

        flows.ack(claimed)

        assert flows.states(inserted.job_ids) == ["available", "cancelled"]

    @pytest.mark.parametrize("how", ENDS)
    def test_a_job_waits_for_one_that_has_ended(self, flows, how):
        [plain] = flows.engine.insert([NewJob("tests.task", max_attempts=1)], now=NOW)
        flows.end(plain.id, how)

        inserted = flows.insert(*[job(stored(plain.id, rule)) for rule in DependencyRule])

        good, bad = "available", "cancelled"
        expected = [good, good, good, bad] if how == "completed" else [bad, good, good, good]
        assert flows.states(inserted.job_ids) == expected

    def test_an_unknown_job_counts_as_deleted(self, flows):
        inserted = flows.insert(job(stored(10**9)), job(stored(10**9, ANY_END)), job(after(0)))

        assert flows.states(inserted.job_ids) == ["cancelled", "available", "cancelled"]
        assert "deleted" in flows.engine.get(inserted.job_ids[0]).errors[-1]["message"]

    def test_a_job_waits_for_a_stored_flow(self, flows):
        first = flows.insert(job(), job())
        inserted = flows.insert(*[job(stored(first.flow_ids[0], rule)) for rule in (SUCCESS, FAILURE)])
        assert flows.states(inserted.job_ids) == ["suspended", "suspended"]

        flows.run(*first.job_ids)

        assert flows.states(inserted.job_ids) == ["available", "cancelled"]

    def test_a_job_waits_for_a_flow_that_has_finished(self, flows):
        first = flows.insert(job())
        flows.end(first.job_ids[0], "discarded")
        assert flows.is_finished(first.flow_ids[0])

        inserted = flows.insert(*[job(stored(first.flow_ids[0], rule)) for rule in DependencyRule])

        assert flows.states(inserted.job_ids) == ["cancelled", "available", "available", "available"]

    def test_a_job_that_waits_for_a_finished_and_a_living_one_waits_for_the_living_one(self, flows):
        done, alive = flows.engine.insert([NewJob("tests.task")] * 2, now=NOW)
        flows.ack(*flows.fetch(1))
        inserted = flows.insert(job(stored(done.id), stored(alive.id)))
        assert flows.states(inserted.job_ids) == ["suspended"]

        flows.run(alive.id)

        assert flows.states(inserted.job_ids) == ["available"]


class TestUnique:
    def test_two_unfinished_flows_never_hold_one_key(self, flows):
        first = flows.insert(job(), flows=(NewFlow(unique_key="k"),))

        second = flows.insert(job(), job(), flows=(NewFlow(unique_key="k"),))

        assert second.was_duplicate
        assert list(second.flow_ids) == [first.flow_ids[0]]
        assert list(second.job_ids) == []
        flows.run(first.job_ids[0])
        third = flows.insert(job(), flows=(NewFlow(unique_key="k"),))
        assert not third.was_duplicate
        assert flows.engine.flow(third.flow_ids[0]).unique_key == "k"

    def test_jobs_of_flows_have_no_unique_keys(self, flows):
        with pytest.raises(InvalidJob):
            flows.insert(job(unique_key="k"))


class TestReading:
    def test_a_flow_is_read_as_it_was_stored(self, flows):
        new = NewFlow(FlowKind.BATCH, "import", OnFailure.CANCEL, is_open=True, meta='{"by": "Ünal"}', unique_key="k")
        inserted = flows.insert(job(), flows=(new,))

        flow = flows.engine.flow(inserted.flow_ids[0])

        assert (flow.id, flow.kind, flow.name, flow.on_failure) == (inserted.flow_ids[0], *new[:3])
        assert (flow.whole_id, flow.is_open, flow.unique_key) == (None, True, "k")
        assert json.loads(flow.meta) == {"by": "Ünal"}
        assert (flow.inserted_at, flow.failed_at, flow.finished_at) == (NOW, None, None)
        assert flows.numbers(flow.id) == (1, 0, 0, 0)
        assert flows.engine.flow(10**9) is None

    def test_flows_are_listed_newest_first(self, flows):
        whole = flows.insert(job(), flows=(NewFlow(name="a"), NewFlow(FlowKind.PART, whole=0)))
        batch = flows.insert(flows=(NewFlow(FlowKind.BATCH, "b", is_open=True),)).flow_ids[0]
        last = flows.insert(job(), flows=(NewFlow(name="a"),)).flow_ids[0]
        flows.run(*whole.job_ids, last + 1)
        flows.settle()
        first = whole.flow_ids[0]

        def listed(**filters) -> list[int]:
            return [flow.id for flow in flows.engine.flows(**filters)]

        assert listed() == [last, batch, first]
        assert listed(limit=2) == [last, batch]
        assert listed(before=batch) == [first]
        assert listed(kind=FlowKind.BATCH) == [batch]
        assert listed(name="a") == [last, first]
        assert listed(name="") == []
        assert listed(is_finished=False) == [batch]
        assert listed(is_finished=True) == [last, first]

    def test_the_jobs_of_a_flow_are_read_in_pages(self, flows):
        part = NewFlow(FlowKind.PART, whole=0)
        inserted = flows.insert(
            job(name="download"), job(after(0), flow=1), job(after(0), flow=1), job(of_flow(1)), flows=(NewFlow(), part)
        )
        whole, part_id = inserted.flow_ids
        more = flows.insert(job(), flows=(NewFlow(FlowKind.PART, whole_id=whole),))
        a, b, c, d = inserted.job_ids

        members = flows.engine.flow_jobs(whole)

        assert [member.id for member in members] == [a, b, c, d, more.job_ids[0]]
        assert [member.flow_id for member in members] == [whole, part_id, part_id, whole, more.flow_ids[0]]
        assert [member.name for member in members] == ["download", "", "", "", ""]
        assert [member.pending for member in members] == [0, 1, 1, 1, 0]
        assert [member.state for member in members] == ["available", *["suspended"] * 3, "available"]
        assert [list(member.upstreams) for member in members] == [
            [], [(a, SUCCESS)], [(a, SUCCESS)], [(part_id, SUCCESS)], [],
        ]  # fmt: skip
        assert (members[0].queue, members[0].task) == ("default", "tests.task")
        assert [member.id for member in flows.engine.flow_jobs(part_id)] == [b, c]
        paged, last = [], 0
        while page := flows.engine.flow_jobs(whole, after=last, limit=2):
            paged += page
            last = page[-1].id
        assert paged == members
        assert flows.engine.flow_jobs(10**9) == []

    def test_upstreams_and_their_results(self, flows):
        inserted = flows.insert(
            job(name="a"),
            job(name="b"),
            job(flow=1),
            job(after(1), after(0, ANY_END), of_flow(1, NO_RESULT)),
            flows=(NewFlow(), NewFlow(FlowKind.PART, "group", whole=0)),
        )
        a, b, _, last = inserted.job_ids
        flows.ack(*flows.fetch(1), result='{"n": [1]}')

        upstreams = sorted(flows.engine.upstreams(last))

        assert [(up.id, up.is_flow, up.name, up.rule, up.state) for up in upstreams] == [
            (inserted.flow_ids[1], True, "group", NO_RESULT, "unfinished"),
            (a, False, "a", ANY_END, "completed"),
            (b, False, "b", SUCCESS, "available"),
        ]
        assert [up.result and json.loads(up.result) for up in upstreams] == [None, {"n": [1]}, None]
        assert flows.engine.upstreams(a) == []
        assert flows.engine.upstreams(10**9) == []

    def test_upstreams_that_had_ended_before_are_read_too(self, flows):
        [plain] = flows.engine.insert([NewJob("tests.task")], now=NOW)
        flows.ack(*flows.fetch(), result="7")
        inserted = flows.insert(job(stored(plain.id)))
        flows.settle()

        [upstream] = flows.engine.upstreams(inserted.job_ids[0])

        assert (upstream.id, upstream.state, upstream.result) == (plain.id, "completed", "7")

    def test_a_deleted_upstream_is_said_to_be_deleted(self, flows):
        inserted = flows.insert(job(), job(after(0, ANY_END)))
        flows.end(inserted.job_ids[0], "deleted")

        [upstream] = flows.engine.upstreams(inserted.job_ids[1])

        assert (upstream.id, upstream.state, upstream.is_flow) == (inserted.job_ids[0], "deleted", False)

    def test_downstreams_of_a_job_and_of_a_flow(self, flows):
        inserted = flows.insert(job(), job(after(0)), job(after(0, FAILURE), name="c"), job(of_flow(0), flow=None))

        found = flows.engine.downstreams(inserted.job_ids[0])

        assert [(down.id, down.name, down.rule, down.state) for down in found] == [
            (inserted.job_ids[1], "", SUCCESS, "suspended"),
            (inserted.job_ids[2], "c", FAILURE, "suspended"),
        ]
        assert [down.id for down in flows.engine.downstreams(inserted.job_ids[0], limit=1)] == [inserted.job_ids[1]]
        assert [down.id for down in flows.engine.downstreams(inserted.flow_ids[0])] == [inserted.job_ids[3]]
        assert flows.engine.downstreams(10**9) == []

    def test_results_of_the_jobs_of_a_flow(self, flows):
        inserted = flows.insert(
            *[job() for _ in range(3)], job(flow=1), flows=(NewFlow(), NewFlow(FlowKind.PART, whole=0))
        )
        first, second, third, _ = flows.fetch()
        flows.ack(first, result="1")
        flows.ack(second, state=JobState.DISCARDED)

        results = flows.engine.results(inserted.flow_ids[0])

        assert results == [
            (first.id, "completed", "1"), (second.id, "discarded", None), (third.id, "executing", None),
        ]  # fmt: skip
        assert flows.engine.results(inserted.flow_ids[0], limit=1) == results[:1]
        assert flows.engine.results(inserted.flow_ids[0], after=first.id) == results[1:]


class TestCancelFlow:
    def test_every_job_that_has_not_ended_is_cancelled(self, flows):
        inserted = flows.insert(
            *[job() for _ in range(3)],
            job(flow=1),
            job(after(2)),
            flows=(NewFlow(), NewFlow(FlowKind.PART, whole=0)),
        )
        first, second = flows.fetch(2)
        flows.ack(first)

        count = flows.engine.cancel_flow(inserted.flow_ids[0], by="somebody", reason="Not needed.", now=NOW)

        assert count == 4
        assert flows.states(inserted.job_ids) == ["completed", "executing", *["cancelled"] * 3]
        assert flows.engine.get(inserted.job_ids[2]).errors[-1]["message"] == "Not needed."
        assert [request.id for request in flows.worker.cancel_requested([second.id])] == [second.id]
        flows.ack(second, state=JobState.CANCELLED)
        assert flows.is_finished(inserted.flow_ids[0])

    def test_what_waits_for_it_is_stopped(self, flows):
        inserted = flows.insert(job(), job(of_flow(0), flow=None), job(of_flow(0, ANY_END), flow=None))

        flows.engine.cancel_flow(inserted.flow_ids[0], now=NOW)

        assert flows.states(inserted.job_ids) == ["cancelled", "cancelled", "available"]

    def test_an_open_flow_is_closed(self, flows):
        inserted = flows.insert(job(), flows=(NewFlow(FlowKind.BATCH, is_open=True),))

        assert flows.engine.cancel_flow(inserted.flow_ids[0], now=NOW) == 1

        assert flows.is_finished(inserted.flow_ids[0])
        assert flows.engine.cancel_flow(10**9) == 0


class TestRetry:
    def test_a_retried_job_revives_what_it_stopped(self, flows):
        inserted = flows.insert(job(), *[job(after(place)) for place in range(5)])
        flows.end(inserted.job_ids[0], "discarded")
        assert flows.is_finished(inserted.flow_ids[0])

        flows.engine.retry([inserted.job_ids[0]], now=NOW)

        assert flows.states(inserted.job_ids) == ["available", *["suspended"] * 5]
        assert flows.numbers(inserted.flow_ids[0]) == (6, 0, 0, 0)
        flow = flows.engine.flow(inserted.flow_ids[0])
        assert (flow.failed_at, flow.finished_at) == (None, None)
        for id in inserted.job_ids:
            flows.run(id)
        assert flows.numbers(inserted.flow_ids[0]) == (6, 6, 0, 0)
        assert flows.is_finished(inserted.flow_ids[0])

    def test_what_two_failures_stopped_comes_back_with_the_second_retry(self, flows):
        inserted = flows.insert(job(), job(), job(after(0), after(1)))
        flows.ack(*flows.fetch(), state=JobState.DISCARDED)
        first, second, last = inserted.job_ids

        flows.engine.retry([first], now=NOW)
        assert flows.states(inserted.job_ids) == ["available", "discarded", "cancelled"]
        flows.engine.retry([second], now=NOW)
        assert flows.states(inserted.job_ids) == ["available", "available", "suspended"]

        flows.run(first, second)
        flows.run(last)

    def test_a_suspended_job_waits_again_for_what_is_retried(self, flows):
        inserted = flows.insert(job(), job(), job(after(0, ANY_END), after(1)))
        first, second = flows.fetch()
        flows.ack(first, state=JobState.DISCARDED)

        flows.engine.retry([first.id], now=NOW)
        flows.ack(second)

        assert flows.state(inserted.job_ids[2]) == "suspended"
        flows.run(first.id)
        assert flows.state(inserted.job_ids[2]) == "available"

    def test_a_job_that_somebody_cancelled_is_not_revived_with_its_upstream(self, flows):
        inserted = flows.insert(job(), job(after(0)))
        flows.engine.cancel([inserted.job_ids[1]], now=NOW)
        flows.settle()
        flows.end(inserted.job_ids[0], "discarded")

        flows.engine.retry([inserted.job_ids[0]], now=NOW)

        assert flows.states(inserted.job_ids) == ["available", "cancelled"]

    def test_a_callback_of_a_failed_part_is_revived(self, flows):
        inserted = flows.insert(
            job(flow=1), job(flow=1), job(of_flow(1)), flows=(NewFlow(), NewFlow(FlowKind.PART, whole=0))
        )
        first, second = flows.fetch()
        flows.ack(first)
        flows.ack(second, state=JobState.DISCARDED)
        assert flows.state(inserted.job_ids[2]) == "cancelled"

        flows.engine.retry([second.id], now=NOW)

        assert flows.states(inserted.job_ids) == ["completed", "available", "suspended"]
        flows.run(second.id)
        flows.run(inserted.job_ids[2])
        assert flows.is_finished(inserted.flow_ids[0])

    def test_a_flow_is_retried(self, flows):
        inserted = flows.insert(job(), job(), job(after(0)), job(after(2)), job(after(1)))
        first, second = flows.fetch()
        flows.ack(first, state=JobState.DISCARDED)
        flows.ack(second)
        flows.run(inserted.job_ids[4])

        assert flows.engine.retry_flow(inserted.flow_ids[0], now=NOW) == 3

        assert flows.states(inserted.job_ids) == ["available", "completed", "suspended", "suspended", "completed"]
        flows.run(first.id)
        flows.run(inserted.job_ids[2])
        flows.run(inserted.job_ids[3])
        assert flows.numbers(inserted.flow_ids[0]) == (5, 5, 0, 0)

    def test_a_cancelled_flow_is_retried_in_its_order(self, flows):
        inserted = flows.insert(job(), job(after(0)), job(after(1)))
        flows.engine.cancel_flow(inserted.flow_ids[0], now=NOW)
        flows.settle()

        assert flows.engine.retry_flow(inserted.flow_ids[0], now=NOW) == 3

        assert flows.states(inserted.job_ids) == ["available", "suspended", "suspended"]
        for id in inserted.job_ids:
            flows.run(id)

    def test_a_retried_flow_holds_its_key_again(self, flows):
        inserted = flows.insert(job(), flows=(NewFlow(unique_key="k"),))
        flows.end(inserted.job_ids[0], "discarded")

        flows.engine.retry_flow(inserted.flow_ids[0], now=NOW)

        flows.settle()
        assert flows.insert(job(), flows=(NewFlow(unique_key="k"),)).was_duplicate


class TestSignal:
    def wait(self, flows, **fields) -> tuple[int, int]:
        waits = FlowJob(NewJob(SIGNAL_TASK, delay=timedelta(hours=1), **fields), 0)
        return flows.insert(waits, job(after(0))).job_ids

    def test_the_first_signal_wins(self, flows):
        waits, last = self.wait(flows)

        assert flows.engine.signal(waits, '{"ok": true}', by="ada", now=NOW)
        assert not flows.engine.signal(waits, '{"ok": false}', now=NOW)

        found = flows.engine.get(waits)
        assert (found.state, found.result) == ("completed", {"ok": True})
        assert found.finished_at == NOW
        [upstream] = flows.engine.upstreams(last)
        assert json.loads(upstream.result) == {"ok": True}
        flows.run(last)

    def test_a_signal_after_the_timeout_is_not_taken_once_the_job_runs(self, flows):
        waits, last = self.wait(flows)
        flows.worker.stage(now=NOW + timedelta(hours=2))
        [claimed] = flows.fetch(now=NOW + timedelta(hours=2))

        assert not flows.engine.signal(waits, "1", now=NOW)

        flows.ack(claimed, state=JobState.DISCARDED)
        assert flows.states([waits, last]) == ["discarded", "cancelled"]

    def test_only_a_job_that_waits_takes_a_signal(self, flows):
        inserted = flows.insert(job())

        assert not flows.engine.signal(inserted.job_ids[0], "1")
        assert not flows.engine.signal(10**9, "1")

        assert flows.state(inserted.job_ids[0]) == "available"


class TestSteps:
    def test_a_step_is_kept_for_the_next_attempt(self, flows):
        flows.engine.insert([NewJob("tests.task", meta='{"a": 1}')], now=NOW)
        [claimed] = flows.fetch()

        assert flows.engine.step_here(claimed.id, claimed.claim, "charge", '{"id": 7}')
        assert flows.engine.step_here(claimed.id, claimed.claim, "mail", "null")
        flows.ack(claimed, state=JobState.RETRYABLE, error='{"exception": "ValueError"}')

        [again] = flows.fetch()
        assert json.loads(again.meta) == {"a": 1, "steps": {"charge": {"id": 7}, "mail": None}}

    def test_a_step_survives_the_worker(self, flows, register):
        flows.engine.insert([NewJob("tests.task")], now=NOW)
        [claimed] = flows.fetch()
        flows.engine.step_here(claimed.id, claimed.claim, "charge", "7")

        flows.worker.rescue([flows.me], now=NOW)

        [again] = flows.fetch()
        assert json.loads(again.meta)["steps"] == {"charge": 7}
        assert not flows.engine.step_here(claimed.id, claimed.claim, "mail", "1")
        flows.ack(again)
        assert flows.engine.get(claimed.id).meta["steps"] == {"charge": 7}

    def test_a_stale_claim_stores_no_step(self, flows):
        [plain] = flows.engine.insert([NewJob("tests.task")], now=NOW)
        assert not flows.engine.step_here(plain.id, 0, "charge", "7")
        [claimed] = flows.fetch()

        assert not flows.engine.step_here(claimed.id, claimed.claim - 1, "charge", "7")
        flows.ack(claimed)
        assert not flows.engine.step_here(claimed.id, claimed.claim, "charge", "7")

        assert "steps" not in flows.engine.get(claimed.id).meta


class TestPrune:
    RULES = tuple(PruneRule(state, max_age=timedelta(0)) for state in FINAL_STATES)

    def prune(self, flows) -> int:
        flows.settle()
        place, count = None, 0
        while True:
            pruned = flows.worker.prune(self.RULES, place=place, now=NOW + timedelta(days=1))
            count, place = count + pruned.count, pruned.place
            if place is None:
                return count

    def test_finished_jobs_of_an_unfinished_flow_stay(self, flows):
        inserted = flows.insert(job(), job(after(0)), job(flow=1), flows=(NewFlow(), NewFlow(FlowKind.PART, whole=0)))
        flows.run(inserted.job_ids[0], inserted.job_ids[2])

        assert self.prune(flows) == 0
        flows.run(inserted.job_ids[1])
        assert self.prune(flows) == 3

    def test_a_flow_goes_with_its_last_job(self, flows):
        if flows.engine.is_transactional:
            pytest.skip("PostgreSQL keeps finished flows")
        inserted = flows.insert(job(), job(after(0)), job(of_flow(0), flow=None))
        for id in inserted.job_ids:
            flows.run(id)

        assert self.prune(flows) == 3
        self.prune(flows)

        assert flows.engine.flow(inserted.flow_ids[0]) is None
        assert flows.engine.flows() == []
        assert flows.engine.flow_jobs(inserted.flow_ids[0]) == []

    def test_jobs_of_no_flow_go(self, flows):
        flows.engine.insert([NewJob("tests.task")], now=NOW)
        flows.insert(job(), job(after(0)))
        flows.ack(*flows.fetch())

        assert self.prune(flows) == 1
