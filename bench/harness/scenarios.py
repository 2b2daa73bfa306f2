"""The questions that every peer is asked, and how an answer is taken. One call of ``measure`` is one run."""

from __future__ import annotations

import array
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import figures, processes
from bench.harness.installation import Installation
from bench.harness.processes import Failure
from bench.harness.servers import Meter, Postgres, Server
from bench.peers import protocol
from bench.peers.registry import Count, Peer

Answer = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    unit: str
    measure: Callable[[Run], Answer]
    higher_is_better: bool = True


class Run:
    """One peer with an empty queue, for one scenario."""

    def __init__(
        self,
        peer: Peer,
        server: Server,
        installation: Installation,
        scenario: str,
        seconds: float,
        scale: float,
    ):
        self.peer, self.server, self.installation = peer, server, installation
        self.scenario, self.seconds, self.scale = scenario, seconds, scale
        self.folder = Path(tempfile.mkdtemp(prefix="bench-tally-"))
        self.jobs = 0
        self.address = ""

    # -------------------------------------------------------------------------------------------- the queue

    def prepare(self) -> None:
        if isinstance(self.server, Postgres):
            template = "bench_" + "".join(c if c.isalnum() else "_" for c in self.peer.driver.partition(".")[0])
            if not self.server.has_template(template):
                self.address = self.server.empty_template(template)
                self.call("setup")
                self.server.template_is_ready(template)
            self.address = self.server.fresh(template, is_relaxed=self.peer.name.endswith("@async"))
        else:
            self.server.fresh()
            self.address = self.server.url
            self.call("setup")
            self.server.settle()

    def expected(self, *, least: int = 200, most: int = 200_000) -> int:
        """Return how many jobs take about the seconds of a run, and remember it."""
        wanted = self.peer.speed(self.scenario) * self.seconds * self.scale
        digits = 10 ** max(0, len(str(int(wanted))) - 2)
        self.jobs = max(int(least * min(1, self.scale)) or 1, min(most, int(wanted) // digits * digits))
        return self.jobs

    def unfinished(self) -> int:
        return self._count(self.peer.unfinished)

    def finished(self) -> int | None:
        return self._count(self.peer.finished) if self.peer.finished else None

    def _count(self, what: Count) -> int:
        return what(self.address) if callable(what) else self.server.count(what)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------ the drivers

    def command(self, action: str, options: Answer) -> list[str]:
        return [*self.installation.command(self.peer), action, json.dumps(options)]

    def environment(self) -> dict[str, str]:
        name = {"postgres": "DATABASE_URL", "redis": "REDIS_URL", "bunqueue": "BUNQUEUE_URL"}[
            self.peer.server.partition("-")[0]
        ]
        return {
            **os.environ,
            **self.installation.environment(self.peer),
            "BENCH_JOBS": str(self.jobs),
            "BENCH_TALLY": str(self.folder),
            "BENCH_VARIANT": self.peer.variant,
            name: self.address,
        }

    def call(self, action: str, *, timeout: float = 90, **options: Any) -> Answer:
        printed = processes.run(self.command(action, options), environment=self.environment(), timeout=timeout)
        lines = printed.strip().splitlines()
        return dict(json.loads(lines[-1]) or {}) if lines else {}

    # -------------------------------------------------------------------------------------------- the tally

    def heads(self) -> dict[int, tuple[float, ...]]:
        found = {}
        for file in self.folder.glob("*.tally"):
            content = file.read_bytes()
            found[int(file.stem)] = protocol.HEAD.unpack(content)
        return found

    def seen(self) -> int:
        return int(sum(head[0] for head in self.heads().values()))

    def has_begun(self) -> bool:
        return any(head[1] for head in self.heads().values())

    def marks(self) -> list[int]:
        """Return how often each job began, over all processes."""
        total = [0] * self.jobs
        for file in self.folder.glob("*.seen"):
            for number, times in enumerate(file.read_bytes()):
                total[number] += times
        return total

    def check(self, times: int = 1) -> None:
        """Fail unless each job began as often as it should and the server says the same."""
        deadline = time.monotonic() + 5
        while True:
            marks = self.marks()
            wrong = sum(1 for mark in marks if mark != times)
            if not wrong:
                break
            if time.monotonic() > deadline:
                lost, again = sum(mark < times for mark in marks), sum(mark > times for mark in marks)
                raise Failure(f"of {self.jobs} jobs {lost} began too seldom and {again} too often")
            time.sleep(0.03)
        warm_ups = int(sum(head[3] for head in self.heads().values()))
        finished = self.finished()
        if finished is not None and finished != self.jobs + warm_ups:
            raise Failure(f"the server shows {finished} finished jobs and not {self.jobs + warm_ups}")
        if left := self.unfinished():
            raise Failure(f"the server shows {left} unfinished jobs")

    def lateness(self) -> list[float]:
        values = array.array("d")
        for file in self.folder.glob("*.late"):
            values.frombytes(file.read_bytes())
        return list(values)

    # ------------------------------------------------------------------------------------------ the workers

    def work_off(self, *, concurrency: int, kind: str, times: int = 1, copies: int = 1) -> Answer:
        """Run a worker on the backlog; the time is from the first start until the server shows nothing unfinished."""
        own_processes = self.peer.environment == "own"  # djqueue's worker has processes of its own
        options = {"concurrency": concurrency, "kind": kind, "processes": copies if own_processes else 1}
        before = self.server.meter()
        limit = 30 + 6 * self.seconds
        with _several(self.command("work", options), self.environment(), 1 if own_processes else copies) as workers:

            def alive() -> None:
                for worker in workers:
                    if worker.poll() is not None:
                        raise Failure(f"the worker ended with {worker.returncode}: {processes.complaint(worker)}")

            processes.wait_for(lambda: alive() or self.has_begun(), 30, "no job began within 30 s", interval=0.005)
            at_start = (
                self.server.meter(with_statistics=False) if isinstance(self.server, Postgres) else self.server.meter()
            )
            base = _client_cpu(workers)
            processes.wait_for(
                lambda: alive() or self.seen() >= self.jobs,
                limit,
                f"not done within {limit:.0f} s",
                interval=0.01,
            )
            processes.wait_for(
                lambda: alive() or self.unfinished() == 0,
                limit,
                f"all jobs began, but {limit:.0f} s later the server still shows unfinished ones",
                interval=0.01,
            )
            end = time.time()
            at_end = (
                self.server.meter(with_statistics=False) if isinstance(self.server, Postgres) else self.server.meter()
            )
            client = _client_cpu(workers)
            heads = self.heads()
            self.check(times)
        seconds = end - min(head[1] for head in heads.values() if head[1])
        # A process of the tally knows what it had used when its first job began; others count from when we saw that.
        used = sum(
            value - (heads[pid][2] if pid in heads and heads[pid][1] else base.get(pid, 0.0))
            for pid, value in client.items()
        )
        after = self.server.meter()
        answer = {"value": self.jobs / seconds, "jobs": self.jobs, "seconds": seconds}
        server_cpu = at_end.since(at_start)["server_cpu"]
        return {**answer, **self.costs(used, server_cpu, before, after, self.jobs)}

    def costs(self, client: float, server: float | None, before: Meter, after: Meter, jobs: int) -> Answer:
        """Return CPU seconds per 1,000 jobs and, for PostgreSQL, what was written for each."""
        costs: Answer = {
            "client_cpu": client * 1000 / jobs,
            "server_cpu": None if server is None else server * 1000 / jobs,
        }
        if isinstance(self.server, Postgres):
            gone = after.since(before)
            costs["wal_bytes"] = (gone["wal_bytes"] or 0) / jobs
            costs["commits"] = (gone["commits"] or 0) / jobs
            costs["dead_tuples"] = self.server.dead_tuples() / jobs
        return costs


class _several:
    """Several copies of a program, for the length of a block."""

    def __init__(self, command: list[str], environment: dict[str, str], copies: int) -> None:
        self._parts = [processes.started(command, environment=environment) for _ in range(copies)]

    def __enter__(self) -> list[Any]:
        return [part.__enter__() for part in self._parts]

    def __exit__(self, *exception: Any) -> None:
        for part in self._parts:
            part.__exit__(*exception)


def _client_cpu(workers: list[Any]) -> dict[int, float]:
    return processes.cpu_of({pid for worker in workers for pid in processes.tree(worker.pid)})


# -------------------------------------------------------------------------------------------------- scenarios


def add(how: str) -> Callable[[Run], Answer]:
    def measure(run: Run) -> Answer:
        limit = {"seq": 60_000, "conc10": 120_000}.get(how, 400_000)
        run.jobs = max(1000, int(limit * run.scale))
        run.server.settle()
        before = run.server.meter()
        told = run.call("add", how=how, kind="noop", n=run.jobs, seconds=run.seconds, timeout=60 + 3 * run.seconds)
        after = run.server.meter()
        stored = run.unfinished() + (run.finished() or 0)
        if stored != told["added"]:
            raise Failure(f"added {told['added']} jobs, and the server shows {stored}")
        jobs = told["added"]
        answer = {"value": jobs / told["seconds"], "jobs": jobs, "seconds": told["seconds"]}
        return {**answer, **run.costs(told["cpu"], after.since(before)["server_cpu"], before, after, jobs)}

    return measure


def drain(concurrency: int, *, copies: int = 1, kind: str = "noop", times: int = 1) -> Callable[[Run], Answer]:
    def measure(run: Run) -> Answer:
        n = run.expected()
        run.call("fill", kind=kind, n=n, timeout=120)
        if (stored := run.unfinished()) != n:
            raise Failure(f"filled with {n} jobs, and the server shows {stored}")
        run.server.settle()
        return run.work_off(concurrency=concurrency, kind=kind, times=times, copies=copies)

    return measure


def late(action: str, **options: Any) -> Callable[[Run], Answer]:
    """Measure how late jobs begin with a warm worker; ``action`` is what the producer does."""

    def measure(run: Run) -> Answer:
        run.jobs = max(20, int(options["n"] * run.scale))
        if run.peer.is_on_postgres:
            run.server.settle()
        before = run.server.meter()
        told: Answer = {}
        with _several(run.command("work", {"concurrency": 10, "kind": "late"}), run.environment(), 1) as workers:
            if action == "delay":  # its jobs are stored ahead, which gives the worker the time to start
                time.sleep(2)
            base = _client_cpu(workers)
            asked = {**options, "n": run.jobs}
            told = run.call(action, timeout=90, **asked)
            if told.get("ready") is False:
                raise Failure("could not store the jobs before the first was due")
            patience = 45 + run.jobs * options.get("gap", 0)
            processes.wait_for(
                lambda: run.seen() >= run.jobs,
                patience,
                f"cannot keep up: not done {patience:.0f} s later",
                interval=0.05,
            )
            processes.wait_for(lambda: run.unfinished() == 0, 20, "jobs stayed unfinished", interval=0.05)
            used = sum(value - base.get(pid, 0.0) for pid, value in _client_cpu(workers).items())
            run.check()
            waits = [1000 * value for value in run.lateness()]
        after = run.server.meter()
        if len(waits) != run.jobs:
            raise Failure(f"{len(waits)} of {run.jobs} jobs noted when they began")
        answer = {
            "value": figures.percentile(waits, 0.5),
            "p99": figures.percentile(waits, 0.99),
            "worst": max(waits),
            "jobs": run.jobs,
        }
        server_cpu = after.since(before)["server_cpu"]
        return {**answer, **run.costs(used + told.get("cpu", 0.0), server_cpu, before, after, run.jobs)}

    return measure


_all = (
    Scenario("add_seq", "add one by one", "jobs/s", add("seq")),
    Scenario("add_conc10", "add from 10 clients", "jobs/s", add("conc10")),
    Scenario("add_bulk100", "add by the hundred", "jobs/s", add("bulk100")),
    Scenario("add_bulk1000", "add by the thousand", "jobs/s", add("bulk1000")),
    Scenario("drain_c1", "drain no-op jobs, concurrency 1", "jobs/s", drain(1)),
    Scenario("drain_c10", "drain no-op jobs, concurrency 10", "jobs/s", drain(10)),
    Scenario("drain_c100", "drain no-op jobs, concurrency 100", "jobs/s", drain(100)),
    Scenario("drain_2p", "drain no-op jobs, 2 processes with concurrency 10", "jobs/s", drain(10, copies=2)),
    Scenario("io_c100", "jobs that wait 10 ms, concurrency 100", "jobs/s", drain(100, kind="io")),
    Scenario("retry", "jobs that fail twice, concurrency 10", "jobs/s", drain(10, kind="flaky", times=3)),
    Scenario(
        "lat_100",
        "from send to start at 100 jobs/s",
        "ms",
        late("produce", n=500, rate=100),
        higher_is_better=False,
    ),
    Scenario(
        "lat_1000",
        "from send to start at 1,000 jobs/s",
        "ms",
        late("produce", n=5000, rate=1000),
        higher_is_better=False,
    ),
    Scenario(
        "delayed",
        "from due to start, one job every 5 ms",
        "ms",
        late("delay", n=1000, gap=0.005, ahead=6),
        higher_is_better=False,
    ),
)
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _all}
QUICK = ("add_seq", "add_conc10", "add_bulk1000", "drain_c10", "drain_c100", "io_c100", "lat_100", "retry")
