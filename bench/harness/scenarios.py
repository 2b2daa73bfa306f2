"""The questions that every peer is asked, and how an answer is taken. One call of ``measure`` is one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.harness import figures, processes
from bench.harness.processes import Failure
from bench.harness.runs import Answer, Run, client_cpu, several
from bench.harness.servers import Postgres


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    unit: str
    measure: Callable[[Run], Answer]
    higher_is_better: bool = True
    most_repeats: int = 100
    """One that takes minutes is not asked as often as the others."""


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


def snapshot(run: Run) -> Answer:
    """Drain while somebody's transaction stays open, so that VACUUM may not remove what is dead."""
    if not isinstance(run.server, Postgres):
        raise Failure("is not on PostgreSQL")
    n = run.expected(times=6, most=1_000_000)
    run.call("fill", kind="noop", n=n, timeout=300)
    run.server.settle()
    with run.server.snapshot_held():
        return run.work_off(concurrency=10, kind="noop")


def backlog(run: Run) -> Answer:
    """Have a million jobs wait; then add some more, and run a part of them."""
    waiting, extra = max(1000, int(1_000_000 * run.scale)), max(100, int(60_000 * run.scale))
    sample = min(run.expected(), waiting // 2)
    run.jobs = waiting + extra
    empty = run.server.size()
    run.call("fill", kind="noop", n=waiting, timeout=600)
    if (stored := run.unfinished()) != waiting:
        raise Failure(f"filled with {waiting} jobs, and the server shows {stored}")
    run.server.settle()
    size = run.server.size() - empty
    told = run.call("add", how="seq", kind="noop", n=extra, first=waiting, seconds=run.seconds, timeout=120)
    run.jobs = waiting + told["added"]
    run.server.settle()
    return {**run.work_some(sample), "added": told["added"] / told["seconds"], "backlog_bytes": size}


def late(action: str, **options: Any) -> Callable[[Run], Answer]:
    """Measure how late jobs begin with a warm worker; ``action`` is what the producer does."""

    def measure(run: Run) -> Answer:
        run.jobs = max(20, int(options["n"] * run.scale))
        if run.peer.is_on_postgres:
            run.server.settle()
        before = run.server.meter()
        told: Answer = {}
        with several(run.command("work", {"concurrency": 10, "kind": "late"}), run.environment(), 1) as workers:
            if action == "delay":  # its jobs are stored ahead, which gives the worker the time to start
                time.sleep(2)
            base = client_cpu(workers)
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
            used = sum(value - base.get(pid, 0.0) for pid, value in client_cpu(workers).items())
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
    Scenario("add_concbulk", "add by the thousand from 10 clients", "jobs/s", add("concbulk1000")),
    Scenario("drain_c1", "drain no-op jobs, concurrency 1", "jobs/s", drain(1)),
    Scenario("drain_c10", "drain no-op jobs, concurrency 10", "jobs/s", drain(10)),
    Scenario("drain_c100", "drain no-op jobs, concurrency 100", "jobs/s", drain(100)),
    Scenario("drain_2p", "drain no-op jobs, 2 processes with concurrency 10", "jobs/s", drain(10, copies=2)),
    Scenario("io_c10", "jobs that wait 10 ms, concurrency 10", "jobs/s", drain(10, kind="io")),
    Scenario("io_c50", "jobs that wait 10 ms, concurrency 50", "jobs/s", drain(50, kind="io")),
    Scenario("io_c100", "jobs that wait 10 ms, concurrency 100", "jobs/s", drain(100, kind="io")),
    Scenario("cpu_c10", "jobs that compute 1,000 sines and cosines, concurrency 10", "jobs/s", drain(10, kind="cpu")),
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
    Scenario("snapshot", "drain while a snapshot is held open, concurrency 10", "jobs/s", snapshot, most_repeats=3),
    Scenario("backlog", "run with a million waiting jobs, concurrency 10", "jobs/s", backlog, most_repeats=2),
)
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _all}
QUICK = ("add_seq", "add_conc10", "add_bulk1000", "drain_c10", "drain_c100", "io_c100", "lat_100", "retry")
