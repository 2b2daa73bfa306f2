"""Jobs that were promised an id before they are stored: what a transaction of another store's enqueues, when it commits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from djqueue.engines.protocol import Engine
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import Ack, NewJob, UniqueRule
from djqueue.jobs.states import JobState
from tests import stores
from tests.roles import Roles

JOB = NewJob("tests.app.tasks.add", args="[1]")


@pytest.fixture(params=stores.REDIS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["insert", "insert_many"])
def push(request: pytest.FixtureRequest, engine: Engine) -> Callable[[list[int]], list[int]]:
    """Store jobs under these ids; return the ids that the store answers with."""

    def push(ids: list[int]) -> list[int]:
        if request.param == "insert":
            return [job.id for job in engine.insert([JOB] * len(ids), ids=ids)]
        return list(engine.insert_many(JOB, [Encoded("[1]", "{}")] * len(ids), ids=ids).ids)

    return push


def waiting(engine: Engine) -> int:
    return sum(counts.states["available"] for counts in engine.counts())


class TestReservedIds:
    def test_a_job_is_stored_under_the_id_that_it_was_promised(
        self, engine: Engine, push: Callable[[list[int]], list[int]]
    ) -> None:
        ids = list(engine.reserve(1200))

        assert engine.get(ids[0]) is None
        assert push(ids) == ids
        assert engine.get(ids[-1]).args == [1]
        assert waiting(engine) == 1200

    def test_a_second_push_stores_nothing(self, engine: Engine, push: Callable[[list[int]], list[int]]) -> None:
        ids = list(engine.reserve(3))
        push(ids)

        assert push(ids) == ids
        assert waiting(engine) == 3

    def test_what_is_missing_of_a_first_push_is_stored_by_the_second(
        self, engine: Engine, push: Callable[[list[int]], list[int]]
    ) -> None:
        ids = list(engine.reserve(3))
        push(ids[1:2])

        push(ids)

        assert waiting(engine) == 3

    def test_a_second_push_does_not_run_again_what_has_run(
        self, engine: Engine, push: Callable[[list[int]], list[int]], worker: Roles, me: UUID
    ) -> None:
        ids = list(engine.reserve(1))
        push(ids)
        [claimed] = worker.fetch("default", 1, me)
        push(ids)
        assert worker.ack([Ack(claimed.id, claimed.claim, JobState.COMPLETED)]).accepted == set(ids)
        push(ids)

        assert worker.fetch("default", 1, me) == []
        assert engine.get(ids[0]).state is JobState.COMPLETED

    def test_a_second_push_does_not_bring_back_what_runs_at_most_once(
        self, engine: Engine, push: Callable[[list[int]], list[int]], worker: Roles, me: UUID
    ) -> None:
        ids = list(engine.reserve(1))
        push(ids)
        [taken] = worker.take("default", 1, me)

        push(ids)

        assert engine.get(ids[0]) is None
        assert worker.take("default", 1, me) == []
        worker.ack([Ack(taken.id, taken.claim, JobState.COMPLETED, taken=taken)])
        assert engine.get(ids[0]).state is JobState.COMPLETED

    def test_a_job_has_its_turn_from_when_it_came_in_not_from_when_it_was_promised(
        self, engine: Engine, push: Callable[[list[int]], list[int]], worker: Roles, me: UUID
    ) -> None:
        ids = list(engine.reserve(2))
        [direct] = engine.insert([JOB])

        push(ids)

        assert [job.id for job in worker.fetch("default", 3, me)] == [direct.id, *ids]

    def test_a_server_that_forgot_its_last_ids_does_not_hand_them_out_again(
        self, engine: Engine, push: Callable[[list[int]], list[int]]
    ) -> None:
        ids = [id + 100_000 for id in engine.reserve(3)]

        push(ids)

        assert engine.reserve(1)[0] > ids[-1]


class TestHolders:
    KEYED = JOB._replace(unique_key="k")

    def test_a_live_job_holds_its_key(self, engine: Engine, worker: Roles, me: UUID) -> None:
        assert engine.holders(["k"]) == {}
        [job] = engine.insert([self.KEYED])

        assert engine.holders(["other", "k"]) == {"k": job._replace(was_duplicate=True)}
        [claimed] = worker.fetch("default", 1, me)
        assert engine.holders(["k"])["k"].state is JobState.EXECUTING
        worker.ack([Ack(claimed.id, claimed.claim, JobState.COMPLETED)])
        assert engine.holders(["k"]) == {}

    def test_it_holds_it_beyond_its_end_where_the_rule_says_so(self, engine: Engine, worker: Roles, me: UUID) -> None:
        rule = UniqueRule(window=timedelta(hours=1))
        [job] = engine.insert([self.KEYED], rule=rule)
        [claimed] = worker.fetch("default", 1, me)
        worker.ack([Ack(claimed.id, claimed.claim, JobState.COMPLETED)])

        assert engine.holders(["k"]) == {}
        assert engine.holders(["k"], rule=rule)["k"].id == job.id
        assert engine.holders(["k"], rule=rule, now=job.inserted_at + timedelta(hours=2)) == {}

    def test_any_number_of_keys_may_be_asked_about(self, engine: Engine) -> None:
        keys = [f"k{number}" for number in range(1200)]
        engine.insert([JOB._replace(unique_key=key) for key in keys])

        assert list(engine.holders(keys)) == keys

    def test_a_second_push_of_a_job_with_a_key_touches_nothing(self, engine: Engine, worker: Roles, me: UUID) -> None:
        ids = engine.reserve(1)
        engine.insert([self.KEYED], ids=ids)
        [claimed] = worker.fetch("default", 1, me)
        worker.ack([Ack(claimed.id, claimed.claim, JobState.COMPLETED)])

        [again] = engine.insert([self.KEYED], ids=ids)

        assert (again.id, again.state, again.was_duplicate) == (ids[0], JobState.COMPLETED, False)
        assert engine.holders(["k"]) == {}
