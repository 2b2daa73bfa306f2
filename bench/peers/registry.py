"""Which peers there are, how each is started, and how its server shows that a job is not finished yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bench.peers import ours

PYTHON, NODE = "python", "node"
RedisCommand = tuple[str, ...]
Count = str | tuple[RedisCommand, ...] | Callable[[str], int]
"""How a number is asked for: SQL, Redis commands whose answers are added, or a function of the server's address."""


@dataclass(frozen=True)
class Peer:
    """A library with its settings. ``name`` is what the command line and the tables say."""

    name: str
    driver: str
    """The program in this directory."""
    server: str
    """postgres, redis-aof (appendonly, everysec), redis-none (no persistence), bunqueue-memory or bunqueue-sqlite."""
    environment: str
    """Which installation runs the driver: own (where the benchmark itself runs), npm (with the Node on the PATH), npm24
    (with a newer one), npmbun (with Bun), or the requirements file of that name."""
    durability: str
    """durable (committed to disk before the answer), everysec (up to a second may be lost) or none."""
    packages: tuple[str, ...] = ()
    """Whose versions the result names."""
    variant: str = ""
    """Passed to the driver as BENCH_VARIANT."""
    unfinished: Count = ""
    """0 means that all jobs are finished."""
    finished: Count = ""
    """The same for the jobs that ended well; empty when the peer keeps no trace of them."""
    speeds: dict[str, float] = field(default_factory=dict)
    """Rough jobs per second for each scenario, so that a run takes seconds and not minutes. ``drain`` stands for all
    drains that are not named; a missing one is taken from DEFAULT_SPEEDS."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Scenarios that make no sense for the peer, with the reason."""
    note: str = ""
    needs: str = ""
    """What of djqueue the peer is about, if not every commit has it."""

    @property
    def is_on_postgres(self) -> bool:
        return self.server == "postgres"

    def why_not(self, scenario: str) -> str:
        """Say why the peer is not asked this; empty if it is."""
        if scenario == "snapshot" and not self.is_on_postgres:
            return "is not on PostgreSQL"
        return self.lacks.get(scenario, "")

    def speed(self, scenario: str) -> float:
        """Return roughly how many jobs per second it does."""
        scenario = {"snapshot": "drain_c10", "backlog": "drain_c10"}.get(scenario, scenario)
        family, _, concurrency = scenario.partition("_c")
        family = family.partition("_")[0]
        speed = (
            self.speeds.get(scenario)
            or self.speeds.get(family)
            or DEFAULT_SPEEDS.get(scenario)
            or DEFAULT_SPEEDS[family]
        )
        # Each of them can start a hundred jobs a second that take 10 ms.
        return min(speed, 90 * int(concurrency)) if family == "io" else speed


DEFAULT_SPEEDS = {"add": 1e9, "drain": 1000, "io": 500, "cpu": 800, "retry": 100, "lat": 1, "delayed": 1}
"""Adding ends with the time limit in any case."""

ONE_AT_A_TIME = dict.fromkeys(
    ("drain_c10", "drain_c100", "drain_2p", "io_c10", "io_c50", "io_c100", "cpu_c10", "snapshot", "backlog"),
    "runs one job at a time in a process",
)
FILLS_SLOWLY = {"backlog": "takes too long to fill"}
BULL_UNFINISHED = (
    ("LLEN", "bull:bench:wait"),
    ("LLEN", "bull:bench:active"),
    ("ZCARD", "bull:bench:delayed"),
    ("ZCARD", "bull:bench:prioritized"),
    ("LLEN", "bull:bench:paused"),
)
BULL_FINISHED = (("ZCARD", "bull:bench:completed"),)

PGQUEUER_UNFINISHED = "SELECT count(*) FROM pgqueuer"
PGQUEUER_FINISHED = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"

_djqueue = Peer(
    "djqueue",
    driver="drive_djqueue.py",
    server="postgres",
    environment="own",
    durability="durable",
    packages=("django", "psycopg"),
    unfinished="SELECT count(*) FROM djqueue_job",
    finished="SELECT count(*) FROM djqueue_finishedjob WHERE state = 'completed'",
    speeds={"drain": 30_000, "drain_c1": 15_000, "io": 7000, "cpu": 2500, "retry": 1500},
)
_bullmq = Peer(
    "bullmq@aof",
    driver="drive_bullmq.mjs",
    server="redis-aof",
    environment="npm",
    durability="everysec",
    packages=("bullmq", "ioredis"),
    unfinished=BULL_UNFINISHED,
    finished=BULL_FINISHED,
    speeds={"drain": 7000, "drain_c1": 1400, "io": 5000, "cpu": 3500, "retry": 500},
)
_bunqueue = Peer(
    "bunqueue@mem",
    driver="drive_bunqueue.mjs",
    server="bunqueue-memory",
    environment="npmbun",
    durability="none",
    packages=("bunqueue",),
    unfinished=(("waiting",), ("prioritized",), ("delayed",), ("active",), ("dlq",)),
    finished=(("totalCompleted",),),
    speeds={"drain": 6000, "drain_c1": 2000, "io": 1500, "cpu": 2000, "retry": 400},
)
_graphile = Peer(
    "graphile:batch",
    driver="drive_graphile.mjs",
    server="postgres",
    environment="npm24",
    durability="durable",
    variant="batch",
    packages=("graphile-worker",),
    unfinished="SELECT count(*) FROM graphile_worker._private_jobs",
    speeds={"drain": 25_000, "io": 6500, "cpu": 9000, "retry": 10},
    note="deletes finished jobs; a failed job waits at least e^attempt seconds",
)

_imqueue = Peer(
    "imqueue:safe",
    driver="drive_imqueue.mjs",
    server="redis-aof",
    environment="npm",
    durability="everysec",
    variant="safe",
    packages=("@imqueue/core", "ioredis"),
    unfinished=(
        ("LLEN", "imq:bench"),
        ("ZCARD", "imq:bench:delayed"),
        ("EVAL", "return #redis.call('keys', 'imq:bench:worker:*')", "0"),
    ),
    speeds={"drain": 4000, "io": 4000, "cpu": 3000},
    lacks={
        **dict.fromkeys(
            ("drain_c1", "drain_c10", "io_c10", "io_c50", "cpu_c10"),
            "has no concurrency: all messages are under way at once",
        ),
        **dict.fromkeys(("add_bulk100", "add_bulk1000", "add_concbulk"), "has no bulk interface"),
        "retry": "has no retries",
    },
    note="does not wait for the server when it sends; acknowledges when the handler was called, not when it has ended",
)

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        _djqueue,
        replace(
            _djqueue,
            name="djqueue@relaxed",
            durability="everysec",
            variant="relaxed",
            note='durability="relaxed"',
        ),
        replace(
            _djqueue,
            name="djqueue@redis",
            server="redis-aof",
            durability="everysec",
            packages=("django", "redis"),
            variant="redis",
            unfinished=ours.unfinished,
            finished=ours.finished,
            note="the same tasks on the Redis backend",
            needs="djqueue.backends.RedisBackend",
        ),
        _bullmq,
        replace(_bullmq, name="bullmq@none", server="redis-none", durability="none"),
        replace(_bullmq, name="bullmq-bun", environment="npmbun"),
        replace(
            _bullmq,
            name="bullmq-pg",
            server="postgres",
            durability="durable",
            variant="postgres",
            packages=("bullmq", "pg"),
            unfinished="SELECT count(*) FROM bullmq.job WHERE state NOT IN ('completed', 'failed')",
            finished="SELECT count(*) FROM bullmq.job WHERE state = 'completed'",
            speeds={"drain": 1000, "drain_c1": 300, "io": 800, "retry": 200},
            note="BullMQ's own backend for PostgreSQL",
        ),
        replace(
            _bunqueue,
            name="bunqueue@sqlite",
            server="bunqueue-sqlite",
            durability="everysec",
            note="writes are collected before they reach the disk",
            speeds={"drain": 2000, "io": 1000, "cpu": 1500, "retry": 300},
        ),
        _bunqueue,
        _graphile,
        replace(
            _graphile,
            name="graphile",
            variant="",
            speeds={"drain": 1800, "drain_c1": 1300, "io": 1500, "cpu": 1400, "retry": 10},
        ),
        Peer(
            "pgboss:batch",
            driver="drive_pgboss.mjs",
            server="postgres",
            environment="npm24",
            durability="durable",
            packages=("pg-boss",),
            unfinished="SELECT count(*) FROM pgboss.job WHERE state < 'completed'",
            finished="SELECT count(*) FROM pgboss.job WHERE state = 'completed'",
            speeds={"drain": 9000, "io": 2500, "cpu": 5000, "retry": 100},
            lacks={"drain_c1": "fetches in batches"},
            note="batches of at least 100; a batch ends with its slowest job",
        ),
        Peer(
            "pgqueuer:fast",
            driver="drive_pgqueuer.py",
            server="postgres",
            environment="postgres",
            durability="durable",
            variant="fast",
            packages=("pgqueuer", "asyncpg"),
            unfinished=PGQUEUER_UNFINISHED,
            finished=PGQUEUER_FINISHED,
            speeds={"drain": 9000, "drain_c1": 2500, "io": 5000, "cpu": 2000, "retry": 200},
            note="no cap on tasks in flight",
        ),
        Peer(
            "pgqueuer",
            driver="drive_pgqueuer.py",
            server="postgres",
            environment="postgres",
            durability="durable",
            packages=("pgqueuer", "asyncpg"),
            unfinished=PGQUEUER_UNFINISHED,
            finished=PGQUEUER_FINISHED,
            speeds={"drain": 1600, "drain_c1": 350, "drain_c100": 5000, "io": 3500, "retry": 200},
        ),
        Peer(
            "procrastinate",
            driver="drive_procrastinate.py",
            server="postgres",
            environment="postgres",
            durability="durable",
            packages=("procrastinate", "psycopg"),
            unfinished="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
            finished="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
            speeds={"drain": 350, "drain_c1": 240, "io": 330, "cpu": 260, "retry": 17},
        ),
        Peer(
            "oban-py",
            driver="drive_oban.py",
            server="postgres",
            environment="postgres",
            durability="durable",
            packages=("oban", "psycopg"),
            unfinished="SELECT count(*) FROM oban_jobs WHERE state NOT IN ('completed', 'cancelled', 'discarded')",
            finished="SELECT count(*) FROM oban_jobs WHERE state = 'completed'",
            speeds={"drain": 1200, "drain_c1": 260, "io": 1400, "retry": 45},
            lacks=FILLS_SLOWLY,
        ),
        Peer(
            "chancy:eager",
            driver="drive_chancy.py",
            server="postgres",
            environment="postgres",
            durability="durable",
            packages=("chancy", "psycopg"),
            unfinished="SELECT count(*) FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')",
            finished="SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'",
            speeds={"drain": 1000, "drain_c1": 200, "io": 1000, "cpu": 450, "retry": 20},
            lacks=FILLS_SLOWLY,
            note="outcomes are stored every 50 ms; those of a process that dies are lost until then",
        ),
        Peer(
            "django-ox",
            driver="drive_django_ox.py",
            server="postgres",
            environment="django",
            durability="durable",
            packages=("django", "django-ox", "psycopg"),
            unfinished="SELECT count(*) FROM django_ox_oxtask WHERE status IN ('READY', 'RUNNING', 'WAITING')",
            finished="SELECT count(*) FROM django_ox_oxtask WHERE status = 'SUCCESSFUL'",
            speeds={"drain": 200, "drain_c1": 100, "io": 200, "cpu": 200, "retry": 50},
        ),
        Peer(
            "django-tasks-db",
            driver="drive_django_tasks_db.py",
            server="postgres",
            environment="django",
            durability="durable",
            packages=("django", "django-tasks-db", "psycopg"),
            unfinished="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status IN ('READY', 'RUNNING')",
            finished="SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status = 'SUCCESSFUL'",
            speeds={"drain": 200},
            lacks={**ONE_AT_A_TIME, "retry": "has no retries", "lat_1000": "cannot keep up"},
        ),
        Peer(
            "bullmq-py",
            driver="drive_bullmq_py.py",
            server="redis-aof",
            environment="redis",
            durability="everysec",
            packages=("bullmq", "redis"),
            unfinished=BULL_UNFINISHED,
            finished=BULL_FINISHED,
            speeds={"drain": 1000, "drain_c1": 600, "io": 950, "retry": 220},
        ),
        _imqueue,
        replace(
            _imqueue,
            name="imqueue",
            variant="",
            lacks={**_imqueue.lacks, "backlog": "loses the message that it reads while it is stopped"},
            note="does not wait for the server when it sends; a message is gone when a worker has read it",
        ),
        Peer(
            "rq",
            driver="drive_rq.py",
            server="redis-aof",
            environment="redis",
            durability="everysec",
            packages=("rq", "redis"),
            unfinished=(
                ("LLEN", "rq:queue:bench"),
                ("ZCARD", "rq:wip:bench"),
                ("ZCARD", "rq:scheduled:bench"),
                ("LLEN", "rq:intermediate:bench"),
            ),
            finished=(("ZCARD", "rq:finished:bench"),),
            speeds={"drain": 110, "retry": 40},
            lacks={**ONE_AT_A_TIME, "lat_1000": "cannot keep up"},
        ),
        Peer(
            "celery:threads",
            driver="drive_celery.py",
            server="redis-aof",
            environment="redis",
            durability="everysec",
            packages=("celery", "redis"),
            unfinished=(("LLEN", "celery"), ("HLEN", "unacked")),
            speeds={"drain": 600, "io": 600, "retry": 50},
            lacks=FILLS_SLOWLY,
            note="acknowledges a job before it runs; keeps no trace of finished jobs; no bulk interface",
        ),
    )
}

QUICK = ("djqueue", "djqueue@redis", "bullmq@aof", "graphile:batch", "pgqueuer:fast", "pgboss:batch", "procrastinate")


def find(names: str | None, *, quick: bool) -> list[Peer]:
    """Return the peers of a comma-separated list. ``NAME@async``: a PostgreSQL peer with synchronous_commit off."""
    if not names:
        return [PEERS[name] for name in QUICK if name in PEERS] if quick else list(PEERS.values())
    found = []
    for name in names.split(","):
        base, _, suffix = name.rpartition("@")
        if name in PEERS:
            found.append(PEERS[name])
        elif suffix == "async" and base in PEERS and PEERS[base].is_on_postgres:
            found.append(replace(PEERS[base], name=name, durability="everysec", note="synchronous_commit off"))
        else:
            raise SystemExit(f"No peer is named {name!r}. There are: {', '.join(PEERS)}; and NAME@async on PostgreSQL.")
    return found
