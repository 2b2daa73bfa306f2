"""What enqueue can say about duplicates on Redis, inside of a transaction and outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from djqueue import DuplicateJob, EngineUnavailable, Unique
from djqueue.jobs.states import JobState
from djqueue.stores import RedisStore
from djqueue.tasks.new_job import new_job
from tests.app.tasks import add
from tests.backends.conftest import Events, jobs_of, through
from tests.defaults import ack, fetch
from tests.proxy import Proxy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("backend")]

once = add.using(unique=True)
strictly = add.using(unique=Unique(on_conflict="raise"))
newest = add.using(unique=Unique(args=["a"], on_conflict="replace"))
follow_up = add.using(unique=Unique(args=["a"], on_running="follow_up"))
debounced = add.using(unique=Unique(args=["a"], debounce=timedelta(hours=1)))


def duplicates(events: Events) -> list[dict[str, Any]]:
    return [fields for name, fields in events if name == "djqueue.enqueue.duplicate"]


class TestInTransaction:
    def test_a_job_that_is_in_the_store_is_returned_at_once(self, backend: RedisStore) -> None:
        first = once.enqueue(1)

        with transaction.atomic():
            second = once.enqueue(1)
            assert (second.id, second.was_duplicate) == (first.id, True)

        assert len(jobs_of(backend)) == 1

    def test_it_is_returned_even_if_it_has_ended_by_the_commit(self, backend: RedisStore) -> None:
        # As in PostgreSQL: the statement decides when it is made.
        first = once.enqueue(1)

        with transaction.atomic():
            assert once.enqueue(1).was_duplicate
            ack(fetch(), JobState.COMPLETED)

        assert [str(job.id) for job in jobs_of(backend)] == [first.id]

    def test_who_takes_the_key_before_the_commit_has_it(
        self, backend: RedisStore, events: Events, caplog: pytest.LogCaptureFixture
    ) -> None:
        with transaction.atomic():
            mine = once.enqueue(1)
            assert not mine.was_duplicate
            [theirs] = backend.engine.insert([new_job(once, [1], {}, backend.settings)])

        assert [job.id for job in jobs_of(backend)] == [theirs.id]
        assert duplicates(events) == [{"job": int(mine.id), "task": add.module_path, "held_by": theirs.id}]
        assert caplog.records == []  # nothing to warn of

    def test_twice_in_one_transaction_is_once_in_the_store(self, backend: RedisStore, events: Events) -> None:
        with transaction.atomic():
            first, second = once.enqueue(1), once.enqueue(1)
            assert not second.was_duplicate

        assert [str(job.id) for job in jobs_of(backend)] == [first.id]
        assert duplicates(events) == [{"job": int(second.id), "task": add.module_path, "held_by": int(first.id)}]

    def test_a_rolled_back_job_never_held_its_key(self, backend: RedisStore) -> None:
        with suppress(ZeroDivisionError), transaction.atomic():
            once.enqueue(1)
            raise ZeroDivisionError

        assert not once.enqueue(1).was_duplicate

    def test_on_conflict_raise_raises_for_a_job_that_is_in_the_store(self, backend: RedisStore) -> None:
        first = strictly.enqueue(1)

        with transaction.atomic(), pytest.raises(DuplicateJob, match=f"Job {first.id}") as caught:
            strictly.enqueue(1)

        assert caught.value.job_id == first.id
        assert len(jobs_of(backend)) == 1

    def test_on_conflict_raise_cannot_see_who_takes_the_key_later_and_warns_of_it(
        self, backend: RedisStore, events: Events, caplog: pytest.LogCaptureFixture
    ) -> None:
        with transaction.atomic():
            mine = strictly.enqueue(1)
            backend.engine.insert([new_job(strictly, [1], {}, backend.settings)])

        assert [fields["job"] for fields in duplicates(events)] == [int(mine.id)]
        assert [record.levelname for record in caplog.records if "enqueue.duplicate" in record.message] == ["WARNING"]

    def test_a_holder_is_changed_by_the_commit(self, backend: RedisStore) -> None:
        first = newest.enqueue(1, b=1)

        with transaction.atomic():
            second = newest.enqueue(1, b=2)
            assert (second.id, second.was_duplicate) == (first.id, True)
            assert jobs_of(backend)[0].kwargs == {"b": 1}

        assert [job.kwargs for job in jobs_of(backend)] == [{"b": 2}]

    def test_a_change_of_a_holder_that_has_ended_by_the_commit_becomes_a_job(self, backend: RedisStore) -> None:
        newest.enqueue(1, b=1)

        with transaction.atomic():
            newest.enqueue(1, b=2)
            ack(fetch(), JobState.COMPLETED)

        assert [(job.state, job.kwargs) for job in jobs_of(backend)] == [
            (JobState.COMPLETED, {"b": 1}),
            (JobState.AVAILABLE, {"b": 2}),
        ]

    def test_a_follow_up_waits_for_the_end_of_the_holder(self, backend: RedisStore) -> None:
        follow_up.enqueue(1, b=1)
        claimed = fetch()

        with transaction.atomic():
            second = follow_up.enqueue(1, b=2)

        assert not second.was_duplicate
        assert [job.state for job in jobs_of(backend)] == [JobState.EXECUTING, JobState.SUSPENDED]
        ack(claimed, JobState.COMPLETED)
        second.refresh()
        assert second.job.state is JobState.AVAILABLE

    def test_debounce_pushes_its_job_back_at_the_commit(self, backend: RedisStore) -> None:
        debounced.enqueue(1, b=1)

        with transaction.atomic():
            debounced.enqueue(1, b=2)

        [job] = jobs_of(backend)
        assert (job.state, job.kwargs) == (JobState.SCHEDULED, {"b": 2})

    def test_many_tell_what_is_in_the_store(self, backend: RedisStore, events: Events) -> None:
        first = once.enqueue(1)

        with transaction.atomic():
            bulk = once.enqueue_many([([number], {}) for number in (0, 1, 2, 2)])

        assert (bulk.count, bulk.duplicates, bulk.duplicate_of) == (3, 1, {1: first.id})
        assert [job.args for job in jobs_of(backend)] == [[1], [0], [2]]
        assert [fields["job"] for fields in duplicates(events)] == [int(bulk.ids[2])]

    @pytest.mark.parametrize("batch_size", [2, 100])
    def test_many_that_may_meet_no_duplicate_store_nothing(self, backend: RedisStore, batch_size: int) -> None:
        strictly.enqueue(3)

        with transaction.atomic():
            add.enqueue(99)
            with pytest.raises(DuplicateJob, match=r"^Item 3: "):
                strictly.enqueue_many([([number], {}) for number in range(5)], batch_size=batch_size)

        assert [job.args for job in jobs_of(backend)] == [[3], [99]]

    def test_with_an_outbox_a_server_that_is_away_is_asked_later(
        self, use_redis: Callable[..., RedisStore], away: Proxy
    ) -> None:
        use_redis(outbox=True, url=through(away))
        with transaction.atomic():
            once.enqueue(1)
        away.refuse()

        with transaction.atomic():
            assert not once.enqueue(1).was_duplicate
            with pytest.raises(EngineUnavailable):
                strictly.enqueue(1)


class TestOutside:
    @pytest.mark.parametrize("batch_size", [2, 100])
    def test_many_are_told_with_their_positions(self, backend: RedisStore, batch_size: int) -> None:
        first = once.enqueue(1)

        bulk = once.enqueue_many([([number], {}) for number in (0, 1, 2, 2)], batch_size=batch_size)

        assert (bulk.count, bulk.duplicate_of) == (2, {1: first.id, 3: bulk.ids[1]})
        assert [job.args for job in jobs_of(backend)] == [[1], [0], [2]]

    @pytest.mark.parametrize("batch_size", [2, 100])
    def test_many_that_may_meet_no_duplicate_store_nothing(self, backend: RedisStore, batch_size: int) -> None:
        strictly.enqueue(3)

        with pytest.raises(DuplicateJob, match=r"^Item 3: "):
            strictly.enqueue_many([([number], {}) for number in range(5)], batch_size=batch_size)

        assert [job.args for job in jobs_of(backend)] == [[3]]

    def test_nor_do_those_that_meet_one_of_their_own(self, backend: RedisStore) -> None:
        with pytest.raises(DuplicateJob, match=r"^Item 2: "):
            strictly.enqueue_many([([number], {}) for number in (0, 1, 1, 2)])

        assert jobs_of(backend) == []


def test_an_iterable_that_ends_early_leaves_nothing(backend: RedisStore) -> None:
    def items() -> Iterator[Any]:
        yield from (([number], {}) for number in range(25))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        add.enqueue_many(items(), batch_size=10)

    assert jobs_of(backend) == []
