"""Which peers there are, how each is started, and how its server shows that a job is not finished yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

PYTHON, NODE = "python", "node"
RedisCommand = tuple[str, ...]


@dataclass(frozen=True)
class Peer:
    """A library with its settings. ``name`` is what the command line and the tables say."""

    name: str
    driver: str
    """The program in this directory."""
    server: str
    """postgres, redis-aof (appendonly, everysec) or redis-none (no persistence)."""
    environment: str
    """Which installation runs the driver: own (where the benchmark itself runs), npm, npm24 or a requirements file."""
    durability: str
    """durable (committed to disk before the answer), everysec (up to a second may be lost) or none."""
    packages: tuple[str, ...] = ()
    """Whose versions the result names."""
    variant: str = ""
    """Passed to the driver as BENCH_VARIANT."""
    unfinished: str | tuple[RedisCommand, ...] = ""
    """SQL for a number, or Redis commands whose answers are added: 0 means that all jobs are finished."""
    finished: str | tuple[RedisCommand, ...] = ""
    """The same for the jobs that ended well; empty when the peer keeps no trace of them."""
    speeds: dict[str, float] = field(default_factory=dict)
    """Rough jobs per second for each scenario, so that a run takes seconds and not minutes. ``drain`` stands for all
    drains that are not named; a missing one is taken from DEFAULT_SPEEDS."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Scenarios that make no sense for the peer, with the reason."""
    note: str = ""

    @property
    def is_on_postgres(self) -> bool:
        return self.server == "postgres"

    def speed(self, scenario: str) -> float:
        family = scenario.partition("_")[0]
        return (
            self.speeds.get(scenario)
            or self.speeds.get(family)
            or DEFAULT_SPEEDS.get(scenario)
            or DEFAULT_SPEEDS[family]
        )


DEFAULT_SPEEDS = {"add": 1e9, "drain": 1000, "io": 500, "retry": 100, "lat": 1, "delayed": 1}
"""Adding ends with the time limit in any case."""

BULL_UNFINISHED = (
    ("LLEN", "bull:bench:wait"),
    ("LLEN", "bull:bench:active"),
    ("ZCARD", "bull:bench:delayed"),
    ("ZCARD", "bull:bench:prioritized"),
    ("LLEN", "bull:bench:paused"),
)
BULL_FINISHED = (("ZCARD", "bull:bench:completed"),)

_djqueue = Peer(
    "djqueue",
    driver="drive_djqueue.py",
    server="postgres",
    environment="own",
    durability="durable",
    packages=("django", "psycopg"),
    unfinished="SELECT count(*) FROM djqueue_job",
    finished="SELECT count(*) FROM djqueue_finishedjob WHERE state = 'completed'",
    speeds={"drain": 25_000, "drain_c1": 15_000, "io": 7000, "retry": 1500},
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
    speeds={"drain": 7000, "drain_c1": 1400, "io": 5000, "retry": 500},
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
    speeds={"drain": 25_000, "io": 6500, "retry": 10},
    note="deletes finished jobs; a failed job waits at least e^attempt seconds",
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
        _bullmq,
        replace(_bullmq, name="bullmq@none", server="redis-none", durability="none"),
        _graphile,
        replace(
            _graphile,
            name="graphile",
            variant="",
            speeds={"drain": 1800, "drain_c1": 1300, "io": 1500, "retry": 10},
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
            speeds={"drain": 9000, "io": 2500, "retry": 100},
            lacks={"drain_c1": "fetches in batches"},
            note="batches of at least 100; a batch ends with its slowest job",
        ),
    )
}

QUICK = ("djqueue", "bullmq@aof", "graphile:batch", "pgqueuer:fast", "pgboss:batch", "procrastinate")


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
