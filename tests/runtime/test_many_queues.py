"""A worker that serves hundreds of queues costs the store no more than one with a few, while nothing comes."""

from __future__ import annotations

import time

import pytest
import redis
from django.db import connection

from tests import backlog, stores
from tests.ledger import tasks
from tests.ledger.models import Entry
from tests.processes import eventually, worker

pytestmark = pytest.mark.django_db(transaction=True)

POLL, SECONDS = 0.1, 2.0
LIMITS = {"postgres": 400, "valkey": 2000}
"""Fetches from three queues and one look at the others, at twenty polls. On Redis a mark is a command, once in ten seconds."""


def commands(store: str) -> int:
    """How many transactions, or commands within scripts and outside, the store has done."""
    if store == "postgres":
        with connection.cursor() as cursor:
            cursor.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
            return int(cursor.fetchone()[0])
    with redis.Redis.from_url(stores.valkey()) as admin:
        return sum(each["calls"] for each in admin.info("commandstats").values())


def test_t72_the_cost_of_idling_does_not_grow_with_the_number_of_queues(store: str) -> None:
    queues = [f"tenant-{number:03}:1" if number % 2 else f"tenant-{number:03}" for number in range(500)]
    with worker("--queues", ",".join(queues), env={"DJQUEUE_POLL_INTERVAL": str(POLL)}) as running:
        tasks.record.using(queue_name="tenant-042").enqueue("first")
        eventually(lambda: Entry.objects.count() == 1, 30, lambda: running.log)
        eventually(lambda: backlog.live() == 0, 30, lambda: running.log)
        time.sleep(1)  # until what it did so far stands in the statistics

        before = commands(store)
        time.sleep(SECONDS)  # a count per time, of which a slow machine can only take less
        spent = commands(store) - before

        # One fetch per queue and poll would be 10,000 of them, each of several commands on Redis, or as many as the time allows.
        assert spent < LIMITS[store]
        tasks.record.using(queue_name="tenant-499").enqueue("last")
        eventually(lambda: Entry.objects.count() == 2, 30, lambda: running.log)
