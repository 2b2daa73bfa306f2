"""Enqueues go on for a while when the server is away, if there is an outbox."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import transaction

from djqueue import BulkInterrupted, EngineUnavailable
from djqueue.maintenance.relay import Relay
from djqueue.models import OutboxRow
from djqueue.outbox.id_pool import STOCK, IdPool
from djqueue.stores import RedisStore
from tests.app import tasks
from tests.backends.conftest import Events, jobs_of, names, through
from tests.processes import eventually
from tests.proxy import Proxy

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_transaction_that_knows_its_ids_needs_no_server(
    use_redis: Callable[..., RedisStore], away: Proxy, events: Events
) -> None:
    backend = use_redis(outbox=True, url=through(away))
    with transaction.atomic():
        tasks.add.enqueue(1)
    away.refuse()

    for number in (2, 3):
        with transaction.atomic():
            tasks.add.enqueue(number)

    assert OutboxRow.objects.count() == 2
    # The second was not even tried: a server that swallows everything would hold every request up.
    assert names(events).count("djqueue.outbox.waiting") == 1
    away.accept()
    Relay(backend.engine, backend.outboxes, is_leader=lambda: True, age=timedelta(0)).run_once()
    assert [job.args for job in jobs_of(backend)] == [[1], [2], [3]]


def test_when_the_stock_is_used_up_the_caller_is_told(use_redis: Callable[..., RedisStore], away: Proxy) -> None:
    backend = use_redis(outbox=True, url=through(away))
    stock = IdPool(backend.engine)
    stock.reserve(1)
    away.refuse()

    promised = [id for _ in range(STOCK) for id in stock.reserve(1)]

    assert len(set(promised)) == STOCK
    with pytest.raises(EngineUnavailable):
        stock.reserve(1)
    away.accept()
    assert stock.reserve(1)[0] > promised[-1]


def test_ids_follow_one_another_however_many_are_wanted(backend: RedisStore) -> None:
    stock = IdPool(backend.engine)

    for count in (1, 3, 10 * STOCK, STOCK, 2):
        ids = stock.reserve(count)
        assert list(ids) == list(range(ids[0], ids[0] + count))


def test_a_child_process_promises_none_of_its_parents_ids(backend: RedisStore) -> None:
    stock = IdPool(backend.engine)
    [first] = stock.reserve(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(stock.reserve(1)[0]).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        theirs = int(answer.read())

    assert stock.reserve(1)[0] == first + 1
    assert theirs > first + STOCK


def test_many_outside_of_a_transaction_say_how_far_they_came(use_redis: Callable[..., RedisStore], away: Proxy) -> None:
    backend = use_redis(url=through(away))

    def cut_at(count: int) -> None:
        if count == 20:
            away.refuse()

    with pytest.raises(BulkInterrupted, match="20 jobs are stored") as caught:
        tasks.add.enqueue_many(([[number], {}] for number in range(50)), batch_size=10, on_progress=cut_at)

    away.accept()
    assert len(jobs_of(backend)) == 20
    assert list(caught.value.ids) == [str(job.id) for job in jobs_of(backend)]


class Slow:
    """A store that answers when it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[int] = []
        self.next_id = 1
        self.fails = False

    def reserve(self, count: int) -> range:
        self.asked.append(count)
        if len(self.asked) > 1:
            assert self.answers.wait(30)
            if self.fails:
                raise EngineUnavailable("It said nothing for too long.")
        first, self.next_id = self.next_id, self.next_id + count
        return range(first, first + count)


def test_t16_while_the_store_does_not_answer_others_take_what_is_left() -> None:
    store = Slow()
    stock = IdPool(store)  # type: ignore[arg-type]
    taken = [*stock.reserve(1)]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(stock.reserve, 1 + STOCK // 2)
        eventually(lambda: len(store.asked) == 2)
        taken += [id for _ in range(100) for id in stock.reserve(1)]
        assert not first.done()
        store.fails = True
        store.answers.set()

        taken += first.result(30)

    assert len(set(taken)) == len(taken) == 1 + 100 + 1 + STOCK // 2
    assert stock.is_away
    assert store.asked == [1 + STOCK, STOCK]


def test_t16_one_asks_for_the_stock_and_another_for_what_it_needs() -> None:
    store = Slow()
    stock = IdPool(store)  # type: ignore[arg-type]
    taken = [*stock.reserve(1)]
    with ThreadPoolExecutor(2) as pool:
        large = [pool.submit(stock.reserve, 600) for _ in range(2)]
        eventually(lambda: len(store.asked) == 3)
        store.answers.set()
        for each in large:
            ids = each.result(30)
            assert list(ids) == list(range(ids[0], ids[0] + 600))
            taken += ids

    assert len(set(taken)) == len(taken)
    assert sorted(store.asked) == [600, STOCK, 1 + STOCK]
    assert stock.reserve(STOCK // 2)
    assert len(store.asked) == 3
