"""Threads that enqueue all the time, in every way there is, and note what they know about it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connection, transaction

from djqueue.exceptions import DjqueueError
from tests import backlog
from tests.chaos import hostile, tasks
from tests.chaos.ledger import Ledger

BACKLOG_LIMIT = 1500
"""Producers pause where so many jobs wait: a run ends only when all of them have ended."""

_Way = tuple[float, str, Callable[[], list[Any]]]
"""How often, which task, and what makes its arguments."""


def _named(name: str) -> Any:
    return getattr(hostile, name, None) or getattr(tasks, name)


def _attacks(chance: random.Random) -> list[_Way]:
    return [
        (0.15, "leave", lambda: [chance.choice([0, 0, 3])]),
        (1, "sys_exit", list),
        (1, "asys_exit", list),
        (0.3, "end_loop", lambda: [chance.choice(hostile.LOOP_ENDS)]),
        (0.5, "fork", lambda: [chance.choice(hostile.FORKS)]),
        (0.5, "afork", lambda: [chance.choice(hostile.FORKS)]),
        (0.5, "fork_and_write", lambda: [chance.choice(hostile.FORKS)]),
        (0.5, "terminate", list),
        (6, "write_alone", list),
        (2, "change_session", lambda: [chance.choice(hostile.SESSIONS)]),
        (1, "open_transaction", list),
        (1, "end_transaction", lambda: [chance.choice(["ROLLBACK", "ROLLBACK", "COMMIT"])]),
        (0.5, "start_threads", lambda: [round(chance.uniform(1, 10), 1), chance.random() < 0.5]),
        (0.15, "shout", lambda: [chance.randint(1, 3)]),
    ]


class Producer(threading.Thread):
    def __init__(self, seed: int, ledger: Ledger, per_second: float, *, is_hostile: bool) -> None:
        super().__init__(name="chaos-producer")
        self._chance = random.Random(seed)
        self._ledger = ledger
        self._pause = 1 / per_second
        self._is_hostile = is_hostile
        self._stop_event = threading.Event()

    def stop(self) -> None:
        self._stop_event.set()

    def run(self) -> None:
        rounds = 0
        while not self._stop_event.wait(self._chance.uniform(0, 2) * self._pause):
            rounds += 1
            try:
                if rounds % 20 == 0:
                    while backlog.live() > BACKLOG_LIMIT and not self._stop_event.wait(0.5):
                        pass
                self._enqueue()
            except (DatabaseError, InterfaceError, DjqueueError):
                # Nobody knows what became of it. What is unknown may run or not; it is not acknowledged.
                connection.close()
                time.sleep(0.1)
        connection.close()

    def _enqueue(self) -> None:
        way = self._chance.random()
        if way < 0.15:
            self._in_transaction()
        elif way < 0.25:
            name, arguments = self._choose()
            many = [(arguments, {})] * self._chance.randint(2, 30)
            if name in ("poison", "write") or hasattr(hostile, name):
                many = many[:2]
            result = _named(name).enqueue_many(many)
            self._ledger.note("enqueued", jobs=[int(id) for id in result.ids], task=name, arguments=arguments)
        else:
            name, arguments = self._choose()
            task = self._delayed(_named(name))
            id = int(task.enqueue(*arguments).id)
            self._ledger.note("enqueued", jobs=[id], task=name, arguments=arguments)

    def _in_transaction(self) -> None:
        chosen = [self._choose() for _ in range(self._chance.randint(1, 4))]
        is_rolled_back = self._chance.random() < 0.5
        ids: list[int] = []
        with transaction.atomic():
            for name, arguments in chosen:
                ids.append(int(_named(name).enqueue(*arguments).id))
                time.sleep(self._chance.uniform(0, 0.05))
            if is_rolled_back:
                # Noted before the end: from here on there is no way for it to commit.
                self._ledger.note("rolled back", jobs=ids)
                transaction.set_rollback(True)
        if not is_rolled_back:
            for id, (name, arguments) in zip(ids, chosen, strict=True):
                self._ledger.note("enqueued", jobs=[id], task=name, arguments=arguments, transaction=True)

    def _delayed(self, task: Any) -> Any:
        if self._chance.random() < 0.15:
            task = task.using(run_after=timedelta(seconds=self._chance.uniform(0, 4)))
        if self._chance.random() < 0.1:
            task = task.using(priority=self._chance.randint(-3, 3))
        if (lane := self._chance.random()) < 0.15:
            task = task.using(queue_name="slow" if lane < 0.1 else "single")
        return task

    def _choose(self) -> tuple[str, list[Any]]:
        chance = self._chance
        ways: list[_Way] = [
            (30, "quick", list),
            (25, "aquick", list),
            (10, "nap", lambda: [round(chance.uniform(0.01, 0.5), 3)]),
            (10, "anap", lambda: [round(chance.uniform(0.01, 1), 3)]),
            (0.6, "nap", lambda: [round(chance.uniform(5, 20), 3)]),
            (1.2, "anap", lambda: [round(chance.uniform(5, 25), 3)]),
            (5, "flaky", lambda: [chance.randint(1, 3)]),
            (2, "hopeless", list),
            (3, "retry", list),
            (4, "snooze", lambda: [chance.randint(1, 3)]),
            (2, "cancel", list),
            (2, "discard", list),
            (0.15, "poison", lambda: [chance.choice([1, 1, 3])]),
            (8, "write", lambda: [round(chance.uniform(0, 0.5), 3), chance.random() < 0.3]),
        ]
        if self._is_hostile:
            ways += _attacks(chance)
        if not backlog.engine().is_transactional:
            ways = [way for way in ways if way[1] not in ("write", "fork_and_write", "end_transaction")]
        [(_, name, arguments)] = chance.choices(ways, [way[0] for way in ways])
        return name, arguments()
