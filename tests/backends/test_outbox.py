"""The outbox: nothing that a transaction enqueued is lost between its commit and the store."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.models.signals import post_delete, post_save

from djqueue import EngineUnavailable, InvalidArguments
from djqueue import stores as entries
from djqueue.jobs.records import LIVE_ONLY, NewJob, UniqueRule
from djqueue.jobs.states import JobState
from djqueue.maintenance.relay import LOOK_SECONDS, Relay
from djqueue.models import OutboxRow
from djqueue.outbox import after_commit as deferred_module
from djqueue.outbox.pending_insert import PendingInsert
from djqueue.stores import RedisStore
from tests.app import tasks
from tests.backends.conftest import Events, jobs_of, names, through
from tests.processes import environment, worker
from tests.proxy import Proxy
from tests.test_backends import receiving

pytestmark = pytest.mark.django_db(transaction=True)

NOW = timedelta(0)


class Stop(Exception):
    pass


@pytest.fixture
def backend(use_redis: Callable[..., RedisStore]) -> RedisStore:
    return use_redis(outbox=True)


@pytest.fixture
def relay(backend: RedisStore) -> Relay:
    return relay_of(backend)


def relay_of(backend: RedisStore, *, is_leader: bool = True, age: timedelta = NOW) -> Relay:
    return Relay(backend.engine, backend.outboxes, is_leader=lambda: is_leader, age=age)


def leave_behind(*numbers: int) -> list[str]:
    """Enqueue in a transaction whose process dies right after its commit, as far as the database can see; return the ids."""
    with transaction.atomic():
        results = [tasks.add.enqueue(number) for number in numbers]
        connection.run_on_commit.clear()
    return [result.id for result in results]


class TestWriting:
    def test_a_row_lives_from_the_enqueue_to_the_push(self, backend: RedisStore) -> None:
        with transaction.atomic():
            tasks.add.enqueue(1)
            assert OutboxRow.objects.count() == 1

        assert OutboxRow.objects.count() == 0
        assert [job.args for job in jobs_of(backend)] == [[1]]

    def test_a_rollback_takes_the_row_along(self, backend: RedisStore) -> None:
        with transaction.atomic():
            tasks.add.enqueue(1)
            with suppress(Stop), transaction.atomic():
                tasks.add.enqueue(2)
                raise Stop

        assert OutboxRow.objects.count() == 0
        assert [job.args for job in jobs_of(backend)] == [[1]]

    def test_outside_of_a_transaction_there_is_nothing_to_bridge(self, backend: RedisStore) -> None:
        with receiving(post_save) as saved:
            tasks.add.enqueue(1)

        assert saved == []
        assert len(jobs_of(backend)) == 1

    def test_no_signal_of_a_model_is_sent(self, backend: RedisStore) -> None:
        with receiving(post_save) as saved, receiving(post_delete) as deleted, transaction.atomic():
            tasks.add.enqueue(1)

        assert (saved, deleted) == ([], [])

    def test_many_jobs_are_a_few_rows(self, backend: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(deferred_module, "_PUSH_CHARACTERS", 3000)

        with transaction.atomic():
            bulk = tasks.add.enqueue_many(([number], {}) for number in range(2500))
            assert OutboxRow.objects.count() == 7

        assert OutboxRow.objects.count() == 0
        assert [str(job.id) for job in jobs_of(backend)] == list(bulk.ids)

    def test_many_outside_of_a_transaction_get_one(self, backend: RedisStore) -> None:
        def items() -> Iterator[Any]:
            for number in range(25):
                assert OutboxRow.objects.count() == number // 10
                yield [number], {}

        tasks.add.enqueue_many(items(), batch_size=10)

        assert OutboxRow.objects.count() == 0
        assert len(jobs_of(backend)) == 25

    def test_a_bad_item_among_many_leaves_no_row(self, backend: RedisStore) -> None:
        with pytest.raises(InvalidArguments):
            tasks.add.enqueue_many([*(([number], {}) for number in range(25)), ([object()], {})], batch_size=10)

        assert OutboxRow.objects.count() == 0
        assert jobs_of(backend) == []

    def test_without_autocommit_the_rows_are_left_to_the_relay(self, backend: RedisStore, relay: Relay) -> None:
        transaction.set_autocommit(False)
        try:
            tasks.add.enqueue(1)
            transaction.commit()
            tasks.add.enqueue(2)
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)

        relay.run_once()

        assert [job.args for job in jobs_of(backend)] == [[1]]


class TestRelay:
    def test_what_was_left_behind_is_sent_under_its_id(self, backend: RedisStore, relay: Relay, events: Events) -> None:
        ids = leave_behind(1, 2)

        assert relay.run_once() == LOOK_SECONDS

        assert [(str(job.id), job.args) for job in jobs_of(backend)] == list(zip(ids, [[1], [2]], strict=True))
        assert OutboxRow.objects.count() == 0
        assert [fields["job"] for name, fields in events if name == "djqueue.outbox.sent"] == [int(id) for id in ids]

    def test_what_is_on_its_way_is_left_alone(self, backend: RedisStore) -> None:
        leave_behind(1)

        relay_of(backend, age=timedelta(seconds=60)).run_once()

        assert OutboxRow.objects.count() == 1
        assert jobs_of(backend) == []

    def test_who_does_not_lead_sends_nothing(self, backend: RedisStore) -> None:
        leave_behind(1)

        relay_of(backend, is_leader=False).run_once()

        assert jobs_of(backend) == []

    def test_what_has_arrived_already_is_not_stored_again(self, backend: RedisStore, relay: Relay) -> None:
        with transaction.atomic():
            tasks.add.enqueue(1)
            rows = list(OutboxRow.objects.all())
        OutboxRow.objects.bulk_create(rows)

        relay.run_once()

        assert len(jobs_of(backend)) == 1
        assert OutboxRow.objects.count() == 0

    def test_times_count_from_the_enqueue(self, backend: RedisStore, relay: Relay) -> None:
        with transaction.atomic():
            tasks.add.using(run_after=timedelta(hours=2), max_age=timedelta(hours=3)).enqueue(1)
            tasks.add.using(run_after=timedelta(minutes=1), max_age=timedelta(minutes=2)).enqueue(2)
            connection.run_on_commit.clear()
        OutboxRow.objects.update(created_at=F("created_at") - timedelta(hours=1))

        relay.run_once()

        later, late = jobs_of(backend)
        minute = timedelta(minutes=1)
        assert abs(later.scheduled_at - later.inserted_at - timedelta(hours=1)) < minute
        assert abs(later.expires_at - later.inserted_at - timedelta(hours=2)) < minute
        assert late.state is JobState.AVAILABLE
        assert late.expires_at - late.inserted_at < timedelta(seconds=1)

    def test_one_that_cannot_be_sent_is_told_and_keeps_no_other(
        self, backend: RedisStore, relay: Relay, events: Events
    ) -> None:
        OutboxRow.objects.create(backend="default", text='{"from": "the future"}')
        leave_behind(1)

        relay.run_once()
        relay.run_once()

        assert len(jobs_of(backend)) == 1
        assert OutboxRow.objects.count() == 1
        assert names(events).count("djqueue.outbox.failure") == 1

    def test_rows_of_another_store_are_not_its_business(self, relay: Relay, backend: RedisStore) -> None:
        leave_behind(1)
        OutboxRow.objects.update(backend="elsewhere")

        relay.run_once()

        assert OutboxRow.objects.count() == 1

    def test_the_leader_of_a_store_serves_all_backends_that_share_it(self, settings: Any, backend: RedisStore) -> None:
        default: Any = settings.TASKS["default"]
        other = {**default, "OPTIONS": {**default["OPTIONS"], "prefix": "other"}}
        settings.TASKS = {"default": default, "twin": default, "other": other, "none": {**default, "OPTIONS": {}}}

        found = entries.store("twin").outboxes

        assert [outbox.backend for outbox in found] == ["default", "twin"]

    def test_a_server_that_is_away_is_waited_for(self, use_redis: Callable[..., RedisStore], away: Proxy) -> None:
        backend = use_redis(outbox=True, url=through(away))
        leave_behind(1)
        away.refuse()

        with pytest.raises(EngineUnavailable):
            relay_of(backend).run_once()

        away.accept()
        relay_of(backend).run_once()
        assert len(jobs_of(backend)) == 1

    def test_many_are_sent_in_batches_without_a_rest(
        self, backend: RedisStore, relay: Relay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("djqueue.maintenance.relay.BATCH_LIMIT", 2)
        leave_behind(1, 2, 3)

        assert relay.run_once() == 0
        assert relay.run_once() == LOOK_SECONDS
        assert len(jobs_of(backend)) == 3


class TestPush:
    @pytest.mark.parametrize(
        "push",
        [
            PendingInsert(jobs=[NewJob("a.b")], ids=range(7, 8)),
            PendingInsert(
                jobs=[
                    NewJob(
                        "a.b",
                        args='["\\u0001 Zoë"]',
                        kwargs='{"a":1}',
                        queue="mail",
                        priority=-3,
                        max_attempts=2,
                        scheduled_at=datetime(2031, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC),
                        expires_at=datetime(2032, 1, 1, tzinfo=UTC),
                        meta='{"x":{}}',
                        unique_key="k",
                    ),
                    NewJob("c.d", delay=timedelta(days=30_000, microseconds=1), max_age=timedelta(milliseconds=1)),
                ],
                ids=range(1, 3),
                rule=UniqueRule(window=timedelta(hours=1), replace=True, is_exclusive=True),
            ),
            PendingInsert(
                jobs=[NewJob("a.b")], ids=range(2**40, 2**40 + 2), arguments=[("[1]", "{}"), ("[2]", '{"a":"é"}')]
            ),  # type: ignore[list-item]
        ],
    )
    def test_it_comes_out_of_its_text_as_it_went_in(self, push: PendingInsert) -> None:
        assert PendingInsert.from_text(push.as_text()) == push

    def test_what_is_as_by_default_takes_no_room(self) -> None:
        text = PendingInsert(jobs=[NewJob("a.b")], ids=[7], rule=LIVE_ONLY).as_text()

        assert text == '{"first_id":7,"jobs":[{"task":"a.b"}]}'


class TestCrash:
    PROGRAM = textwrap.dedent(
        """
        import os
        import signal

        import django

        django.setup()

        from django.db import transaction

        from tests.ledger.tasks import record

        with transaction.atomic():
            transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
            record.enqueue("after all")
            record.enqueue_many([["one"], {}] for _ in range(3))
        """
    )

    @pytest.mark.parametrize("has_outbox", [True, False])
    def test_a_process_that_is_killed_between_its_commit_and_the_push_loses_nothing(
        self, use_redis: Callable[..., RedisStore], has_outbox: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tests.ledger.models import Entry

        backend = use_redis(outbox=has_outbox)
        monkeypatch.setenv("DJQUEUE_STORE", "redis")
        monkeypatch.setenv("DJQUEUE_OUTBOX", str(int(has_outbox)))
        done = subprocess.run([sys.executable, "-c", self.PROGRAM], env=environment(), check=False)
        assert done.returncode == -9
        assert OutboxRow.objects.count() == (2 if has_outbox else 0)
        assert jobs_of(backend) == []
        OutboxRow.objects.update(created_at=F("created_at") - timedelta(minutes=1))

        with worker("--no-cron") as running:
            running.wait_for_log("job.stop" if has_outbox else "leader.elected", 4 if has_outbox else 1)

        assert sorted(Entry.objects.values_list("label", flat=True)) == (
            ["after all", "one", "one", "one"] if has_outbox else []
        )
        assert OutboxRow.objects.count() == 0


def test_t69_rows_are_read_a_few_megabytes_at_once(
    use_redis: Callable[..., RedisStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = use_redis(outbox=True)
    outbox = backend.outbox
    assert outbox is not None
    monkeypatch.setattr("djqueue.outbox.rows._READ_CHARACTERS", 1000)
    texts = ["a" * 1500, *["b" * 400] * 4]
    for text in texts:
        outbox.add(text)

    read = []
    while rows := outbox.waiting(timedelta(0), 20):
        read.append([row.text for row in rows])
        outbox.delete([row.id for row in rows])

    assert read == [texts[:1], texts[1:3], texts[3:]]
