"""The Redis engine: it inserts jobs on one connection per thread, and opens the other roles."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from djqueue.engines.redis.codec import STATES, clock, columns, common, is_plain, job_bytes, moment, one, times
from djqueue.engines.redis.controller import RedisController
from djqueue.engines.redis.cron import RedisCron
from djqueue.engines.redis.fetcher import RedisFetcher
from djqueue.engines.redis.flows import RedisFlows
from djqueue.engines.redis.listener import RedisListener
from djqueue.engines.redis.listing import RedisListing
from djqueue.engines.redis.maintainer import RedisMaintainer
from djqueue.engines.redis.parts import parts
from djqueue.engines.redis.registrar import RedisRegistrar
from djqueue.engines.redis.unique import holders, insert_unique, is_simple
from djqueue.exceptions import EngineRefused
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.records import LIVE_ONLY, Ack, InsertedJob, InsertedMany, NewJob, UniqueRule
from djqueue.jobs.states import JobState

_NOT_TRANSACTIONAL = (
    "Redis jobs cannot commit in one transaction with database writes. Use a PostgreSQL backend for tasks with"
    " transactional=True."
)


class RedisEngine(RedisController, RedisListing, RedisFlows):
    """Jobs on the server of one URL, under the keys of one prefix."""

    is_transactional = False

    @property
    def store(self) -> str:
        return f"{self.nodes.address} {self.prefix}"

    def insert_one(
        self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False, now: datetime | None = None
    ) -> InsertedJob:
        """Use a script of its own for an available job without a unique key, or with a free one."""
        if now is None and is_plain(job):
            client = self.client
            if job.unique_key is None:
                at, id = client.run("insert_one", *one(job, client.pack))
                return InsertedJob(id, JobState.AVAILABLE, moment(at))
            if is_simple(rule) and (stored := client.run("insert_one", *one(job, client.pack), job.unique_key)):
                return InsertedJob(stored[1], JobState.AVAILABLE, moment(stored[0]))
        [inserted] = self._insert([job], None, rule, now)
        return inserted

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        ids: Sequence[int] | None = None,
        rule: UniqueRule = LIVE_ONLY,
        relaxed: bool = False,
        now: datetime | None = None,
    ) -> list[InsertedJob]:
        """``ids`` were reserved. A job whose id is already stored, or was taken, is left unchanged."""
        if not jobs:
            return []
        if len(jobs) == 1 and ids is None:
            return [self.insert_one(jobs[0], rule=rule, now=now)]
        return self._insert(jobs, ids, rule, now)

    def _insert(
        self, jobs: Sequence[NewJob], ids: Sequence[int] | None, rule: UniqueRule, now: datetime | None
    ) -> list[InsertedJob]:
        client = self.client
        pack = client.pack
        if any(job.unique_key is not None for job in jobs):
            return insert_unique(client, jobs, rule, ids, now)
        calls = []
        for first, part in parts(jobs, job_bytes):
            given = b"" if ids is None else pack(list(ids[first : first + len(part)]))
            calls.append((clock(now), pack(columns(part, pack)), given))
        answer: list[InsertedJob] = []
        for at, first_id, states in client.run_all("insert", calls):
            inserted_at = moment(at)
            for place, state in enumerate(states):
                id = first_id + place if ids is None else ids[len(answer)]
                answer.append(InsertedJob(id, STATES[state - 49], inserted_at))
        return answer

    def insert_many(
        self,
        job: NewJob,
        arguments: Sequence[Encoded],
        *,
        relaxed: bool = False,
        ids: Sequence[int] | None = None,
        now: datetime | None = None,
    ) -> InsertedMany:
        """``ids`` were reserved together, as for ``insert``."""
        if not arguments:
            return InsertedMany((), "", datetime.min)
        client = self.client
        pack = client.pack
        shared = pack(common(job))[1:], pack((job.queue, job.priority, *times(job)))
        calls = [
            (clock(now), *shared, pack(client.pack_each(part)), b"" if ids is None else ids[first])
            for first, part in parts(arguments, _argument_bytes)
        ]
        answers = client.run_all("insert_many", calls)
        at, first_id, state = answers[0]
        # The runs are one MULTI/EXEC block, so no other job is stored in between and the ids are consecutive.
        return InsertedMany(range(first_id, first_id + len(arguments)), STATES[state - 1], moment(at))

    def holders(
        self, keys: Sequence[str], *, rule: UniqueRule = LIVE_ONLY, now: datetime | None = None
    ) -> dict[str, InsertedJob]:
        """Return the jobs that hold these unique keys now, by key; free keys are left out."""
        return holders(self.client, keys, rule, now)

    def reserve(self, count: int) -> range:
        """Reserve ids for jobs that are stored later, if at all."""
        first = self.client.run("reserve", count)
        return range(first, first + count)

    def transaction(self) -> AbstractContextManager[str]:
        """Always raise: jobs in Redis cannot commit together with a database."""
        raise EngineRefused(_NOT_TRANSACTIONAL)

    def ack_here(self, ack: Ack) -> bool:
        """Always raise: jobs in Redis cannot commit together with a database."""
        raise EngineRefused(_NOT_TRANSACTIONAL)

    @property
    def cron(self) -> RedisCron:
        """Uses the connection of this thread."""
        return RedisCron(self.client)

    def open_cron(self) -> RedisCron:
        return RedisCron(self.open_client("djqueue:cron"))

    def open_listener(self) -> RedisListener:
        """The listener connects at its first mark."""
        return RedisListener(self.nodes, self.prefix)

    def open_fetcher(self) -> RedisFetcher:
        return RedisFetcher(self.open_client("djqueue:worker"))

    def open_registrar(self) -> RedisRegistrar:
        return RedisRegistrar(self.open_client("djqueue:worker"))

    def open_maintainer(self, *, waits: bool = False) -> RedisMaintainer:
        return RedisMaintainer(self.open_client("djqueue:worker"))


def _argument_bytes(arguments: Sequence[Encoded]) -> int:
    return sum([len(args) + len(kwargs) for args, kwargs in arguments])
