"""The verbs of the application on Redis: one Lua file each, on a connection per thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from uuid import UUID

from djqueue.engines.redis.client import ANSWER_TIMEOUT_SECONDS, Client
from djqueue.engines.redis.codec import (
    STATES,
    clock,
    columns,
    common,
    is_plain,
    job_bytes,
    moment,
    one,
    read_job,
    read_pause,
    read_worker,
    times,
)
from djqueue.engines.redis.control import Control
from djqueue.engines.redis.cron import RedisCron
from djqueue.engines.redis.health import health
from djqueue.engines.redis.listener import RedisListener
from djqueue.engines.redis.nodes import Nodes
from djqueue.engines.redis.parts import parts
from djqueue.engines.redis.search import Walks
from djqueue.engines.redis.unique import holders, insert_unique, is_simple
from djqueue.engines.redis.worker import RedisWorkerEngine
from djqueue.exceptions import EngineRefused
from djqueue.jobs.encoding import Encoded
from djqueue.jobs.health import Health
from djqueue.jobs.records import (
    LIVE_ONLY,
    Ack,
    InsertedJob,
    InsertedMany,
    Job,
    NewJob,
    QueueCounts,
    QueueRules,
    UniqueRule,
    WorkerStatus,
)
from djqueue.jobs.states import JobState

_NOT_TRANSACTIONAL = (
    "A job in Redis cannot commit together with what its task writes to a database. Use a PostgreSQL backend for tasks with"
    " transactional=True."
)
_COUNTED = (
    JobState.AVAILABLE,
    JobState.EXECUTING,
    JobState.SCHEDULED,
    JobState.RETRYABLE,
    JobState.SUSPENDED,
)


class RedisEngine(Control, Walks):
    """Jobs on the server of one url, under keys of one prefix."""

    is_transactional = False

    def __init__(
        self,
        url: str,
        prefix: str = "djqueue",
        *,
        answer_timeout_seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> None:
        self.url = url
        self.prefix = prefix
        self._nodes = Nodes(url)
        self.answer_timeout = answer_timeout_seconds
        self._local = threading.local()

    @property
    def store(self) -> str:
        """Name the store: where it is, and the prefix, but neither user nor password."""
        return f"{self._nodes.address} {self.prefix}"

    @property
    def client(self) -> Client:
        """The connection of this thread."""
        try:
            client: Client = self._local.client
        except AttributeError:
            client = self._local.client = self._open("djqueue")
        return client

    def insert_one(
        self, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, relaxed: bool = False, now: datetime | None = None
    ) -> InsertedJob:
        """Store a job at once: by a script of its own if it is available, and has no key or a free one."""
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
        """Store the jobs at once. ``ids`` were reserved; a job that is there already, or was taken, is left as it is."""
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
        """Store jobs that differ in their arguments only, all or none. ``ids`` were reserved together, as for ``insert``."""
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
        # Nobody else stores a job in between, so their ids follow one another.
        return InsertedMany(range(first_id, first_id + len(arguments)), STATES[state - 1], moment(at))

    def holders(
        self, keys: Sequence[str], *, rule: UniqueRule = LIVE_ONLY, now: datetime | None = None
    ) -> dict[str, InsertedJob]:
        """Return the jobs that hold these unique keys now, by key; a key that nobody holds is not among them."""
        return holders(self.client, keys, rule, now)

    def reserve(self, count: int) -> range:
        """Reserve ids for jobs that are stored later, if at all."""
        first = self.client.run("reserve", count)
        return range(first, first + count)

    def get(self, job_id: int) -> Job | None:
        """Return the job, live or finished; None if there is none of this id."""
        if not 0 < job_id < 2**53:
            return None
        payload, *rest = self.client.run("get", job_id)
        return None if payload is None else read_job(job_id, payload, *rest)

    def now(self) -> datetime:
        """Return the time by the server's clock."""
        seconds, rest = self.client.command("TIME")
        return moment(int(seconds) * 1_000_000 + int(rest))

    def counts(self) -> list[QueueCounts]:
        """Count live jobs by queue and state."""
        rows = []
        for queue, *numbers, oldest in self.client.run("counts"):
            states = {state.value: count for state, count in zip(_COUNTED, numbers, strict=True) if count}
            rows.append(
                QueueCounts(queue.decode(errors="replace"), states, None if oldest is None else oldest / 1_000_000)
            )
        return rows

    def queues(self) -> list[QueueRules]:
        """Return the queues about which somebody decided something."""
        flat = iter(self.client.run("queues"))
        return sorted(read_pause(name, about) for name, about in zip(flat, flat, strict=True))

    def workers(self) -> list[WorkerStatus]:
        """Return the workers that the store knows."""
        now, about, beats, dead = self.client.run("workers")
        beat_of = dict(zip(beats[::2], beats[1::2], strict=True))
        found = []
        for id, info in zip(about[::2], about[1::2], strict=True):
            if (read := read_worker(id, info, beat_of.get(id))) is None:
                continue
            (name, hostname, pid, queues, concurrency), beat_at, is_draining = read
            silent = (now - beat_at) / 1e6
            found.append(
                WorkerStatus(
                    UUID(id.decode()), name, hostname, pid, queues, concurrency, silent, is_draining, id in dead
                )
            )
        return sorted(found, key=lambda worker: (worker.name, worker.id))

    def health(self) -> Health:
        """Look at everything that tells whether jobs flow."""
        return health(self.client)

    def transaction(self) -> AbstractContextManager[str]:
        """Refuse: nothing here can commit together with a database."""
        raise EngineRefused(_NOT_TRANSACTIONAL)

    def ack_here(self, ack: Ack) -> bool:
        """Refuse: nothing here can commit together with a database."""
        raise EngineRefused(_NOT_TRANSACTIONAL)

    @property
    def cron(self) -> RedisCron:
        """The crontab, on the connection of this thread."""
        return RedisCron(self.client)

    def open_cron(self) -> RedisCron:
        """Open the crontab for a scheduler: on a connection of its own."""
        return RedisCron(self._open("djqueue:cron"))

    def open_listener(self) -> RedisListener:
        """Open a listener; it connects at its first mark."""
        return RedisListener(self._nodes, self.prefix)

    def open_fetcher(self) -> RedisWorkerEngine:
        return self.open_worker()

    def open_registrar(self) -> RedisWorkerEngine:
        return self.open_worker()

    def open_maintainer(self, *, waits: bool = False) -> RedisWorkerEngine:
        """A script has all its keys to itself, so there is no lock to wait for."""
        return self.open_worker()

    def open_worker(self) -> RedisWorkerEngine:
        """Open what one thread of a worker or supervisor needs; it connects at its first verb."""
        return RedisWorkerEngine(self._open("djqueue:worker"))

    def open_maintenance(self) -> RedisWorkerEngine:
        """As ``open_worker``: a script has all its keys to itself, so there is no lock to wait for."""
        return self.open_worker()

    def close(self) -> None:
        """Close the connection of this thread. Idempotent."""
        self.client.close()

    def _open(self, name: str) -> Client:
        return Client(self._nodes, self.prefix, name=name, answer_timeout_seconds=self.answer_timeout)


def _argument_bytes(arguments: Sequence[Encoded]) -> int:
    return sum([len(args) + len(kwargs) for args, kwargs in arguments])
