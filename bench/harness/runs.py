"""One peer with a queue of its own for one scenario: its drivers, its workers, what it notes, and what it costs."""

from __future__ import annotations

import array
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.harness import processes
from bench.harness.installation import Installation
from bench.harness.processes import Failure
from bench.harness.servers import Meter, Postgres, Server
from bench.peers import protocol
from bench.peers.registry import Count, Peer

Answer = dict[str, Any]


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

    def expected(self, *, least: int = 200, most: int = 200_000, times: float = 1) -> int:
        """Return how many jobs take about the seconds of a run, or a multiple of it, and remember it."""
        wanted = self.peer.speed(self.scenario) * self.seconds * self.scale * times
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
        limit = 30 + 6 * max(self.seconds, self.jobs / self.peer.speed(self.scenario))
        progress: list[tuple[float, int]] = []

        def is_through() -> bool:
            progress.append((time.time(), self.seen()))
            return progress[-1][1] >= self.jobs

        with several(self.command("work", options), self.environment(), 1 if own_processes else copies) as workers:
            alive = _watch(workers)
            processes.wait_for(lambda: alive() or self.has_begun(), 30, "no job began within 30 s", interval=0.005)
            at_start = (
                self.server.meter(with_statistics=False) if isinstance(self.server, Postgres) else self.server.meter()
            )
            base = client_cpu(workers)
            processes.wait_for(
                lambda: alive() or is_through(),
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
            client = client_cpu(workers)
            heads = self.heads()
            self.check(times)
        seconds = end - min(head[1] for head in heads.values() if head[1])
        # A process of the tally knows what it had used when its first job began; others count from when we saw that.
        used = sum(
            value - (heads[pid][2] if pid in heads and heads[pid][1] else base.get(pid, 0.0))
            for pid, value in client.items()
        )
        after = self.server.meter()
        answer = {
            "value": self.jobs / seconds,
            "jobs": self.jobs,
            "seconds": seconds,
            "last_tenth": _last_tenth(progress, self.jobs),
        }
        server_cpu = at_end.since(at_start)["server_cpu"]
        return {**answer, **self.costs(used, server_cpu, before, after, self.jobs)}

    def work_some(self, count: int) -> Answer:
        """Run a worker with concurrency 10 until it has begun so many of the jobs, stop it, and see that none began twice."""
        limit = 60 + 10 * count / self.peer.speed(self.scenario)
        with several(self.command("work", {"concurrency": 10, "kind": "noop"}), self.environment(), 1) as workers:
            alive = _watch(workers)
            processes.wait_for(lambda: alive() or self.has_begun(), 60, "no job began within 60 s", interval=0.005)
            processes.wait_for(
                lambda: alive() or self.seen() >= count,
                limit,
                f"{count} jobs were not begun within {limit:.0f} s",
                interval=0.005,
            )
            end, begun = time.time(), self.seen()
            first = min(head[1] for head in self.heads().values() if head[1])
            memory = max(processes.memory_of(pid) for worker in workers for pid in processes.tree(worker.pid))
        if again := sum(mark > 1 for mark in self.marks()):
            raise Failure(f"{again} of {self.jobs} jobs began more than once")
        left, finished, seen = self.unfinished(), self.finished(), self.seen()
        # What was fetched and not finished is one or the other; where nothing is kept of what ended, all that began may have.
        if left > self.jobs or left + (seen if finished is None else finished) < self.jobs:
            raise Failure(
                f"of {self.jobs} jobs {seen} began, and the server shows {left} unfinished, {finished} finished"
            )
        return {"value": begun / (end - first), "jobs": self.jobs, "worker_bytes": memory}

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


def _watch(workers: list[Any]) -> Callable[[], None]:
    """Return a function that fails when one of the workers has ended."""

    def alive() -> None:
        for worker in workers:
            if worker.poll() is not None:
                raise Failure(f"the worker ended with {worker.returncode}: {processes.complaint(worker)}")

    return alive


def _last_tenth(progress: list[tuple[float, int]], jobs: int) -> float | None:
    """Return the jobs per second of the last tenth; None if it went by between two looks."""
    end, _ = progress[-1]
    at, seen = next(look for look in progress if look[1] >= 0.9 * jobs)
    return (jobs - seen) / (end - at) if end > at else None


class several:
    """Several copies of a program, for the length of a block."""

    def __init__(self, command: list[str], environment: dict[str, str], copies: int) -> None:
        self._parts = [processes.started(command, environment=environment) for _ in range(copies)]

    def __enter__(self) -> list[Any]:
        return [part.__enter__() for part in self._parts]

    def __exit__(self, *exception: Any) -> None:
        for part in self._parts:
            part.__exit__(*exception)


def client_cpu(workers: list[Any]) -> dict[int, float]:
    return processes.cpu_of({pid for worker in workers for pid in processes.tree(worker.pid)})
