"""One function per question. Each adds its jobs, has them run, checks them and returns figures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import DatabaseError, connections

from djqueue.benchmark import tasks
from djqueue.benchmark.figures import Figure, Figures
from djqueue.benchmark.record import CAPACITY, VARIABLE, current
from djqueue.engines.protocol import Engine
from djqueue.exceptions import DjqueueError
from djqueue.jobs.lists import JobFilter
from djqueue.jobs.states import FINAL_STATES, JobState
from djqueue.tasks.task import Task

_QUEUE = JobFilter(queue=tasks.QUEUE)
_WAITING = (JobState.AVAILABLE, JobState.SCHEDULED, JobState.RETRYABLE)
_LONGEST_WAIT = 600.0


class BenchmarkRefused(DjqueueError):
    """The benchmark would meet jobs or workers that are not its own."""


class BenchmarkFailed(DjqueueError):
    """It could not be measured: a job was lost, or ran more often than it may, and such figures mean nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    jobs: int = 20_000
    concurrency: Sequence[int] = (10, 100)
    rates: Sequence[int] = (100, 1000)
    threads: int = 10
    seconds: float = 5.0
    """How long jobs are sent at a fixed rate."""


def measure(benchmarks: Sequence[Benchmark], tell: Callable[[str], None]) -> Figures:
    """Ask every backend one question after the other; leave nothing behind.

    Backend after backend within a question: a machine has fast and slow minutes, which should meet all of them.
    ``tell`` takes a line about each answer.
    """
    for benchmark in benchmarks:
        with _naming(benchmark):
            benchmark.refuse_strangers()
    found: dict[str, list[Figure]] = {benchmark.alias: [] for benchmark in benchmarks}
    for scenarios in zip(*(benchmark.scenarios for benchmark in benchmarks), strict=True):
        for benchmark, scenario in zip(benchmarks, scenarios, strict=True):
            with _naming(benchmark):
                try:
                    for figure in scenario():
                        tell(f"{benchmark.alias}: {figure.name}: {figure}")
                        found[benchmark.alias].append(figure)
                finally:
                    benchmark.clean_up()
    return found


@contextmanager
def _naming(benchmark: Benchmark) -> Iterator[None]:
    try:
        yield
    except (DjqueueError, DatabaseError) as error:
        raise BenchmarkFailed(f"{benchmark.alias}: {error}") from error


@dataclass
class Benchmark:
    """One backend under test."""

    alias: str
    engine: Engine
    plan: Plan = field(default_factory=Plan)

    @property
    def scenarios(self) -> Sequence[Callable[[], Iterator[Figure]]]:
        return (
            self.add_one_by_one,
            self.add_from_threads,
            self.bulk_and_drain,
            self.io,
            self.pickup,
            self.delayed,
            self.retries,
        )

    def refuse_strangers(self) -> None:
        if self.engine.count(_QUEUE, limit=1).count:
            raise BenchmarkRefused(
                f"There are jobs on queue {tasks.QUEUE!r}. Delete them first if they are not needed."
            )
        if serving := [worker.name for worker in self.engine.workers() if tasks.QUEUE in worker.queues]:
            raise BenchmarkRefused(f"A worker serves queue {tasks.QUEUE!r}: {', '.join(serving)}.")

    def clean_up(self) -> None:
        """Delete what is on the queue, finished or not."""
        for states in (_WAITING, tuple(FINAL_STATES)):
            jobs = JobFilter(queue=tasks.QUEUE, states=states)
            last, after = self.engine.count(jobs, limit=10 * CAPACITY).last, 0
            while ids := self.engine.find(jobs, after=after, last=last, limit=5000):
                self.engine.delete(ids)
                after = ids[-1]

    # The questions

    def add_one_by_one(self) -> Iterator[Figure]:
        count = max(100, self.plan.jobs // 20)
        task = self._task(tasks.noop)
        with self._checked(count):
            started = time.perf_counter()
            for index in range(count):
                task.enqueue(index)
            yield Figure("add one by one", "", count / (time.perf_counter() - started), "jobs/s")

    def add_from_threads(self) -> Iterator[Figure]:
        each = max(20, self.plan.jobs // 10 // self.plan.threads)
        count = each * self.plan.threads
        task = self._task(tasks.noop)

        def add(thread: int) -> Iterator[None]:
            for index in range(thread * each, thread * each + each):
                yield
                task.enqueue(index)

        with self._checked(count):
            seconds = self._in_threads(add)
            yield Figure(f"add from {self.plan.threads} threads", "", count / seconds, "jobs/s")

    def bulk_and_drain(self) -> Iterator[Figure]:
        count = self.plan.jobs
        for place, concurrency in enumerate(self.plan.concurrency):
            self._prepare(count)
            started = time.perf_counter()
            self._task(tasks.noop).enqueue_many(((index,), {}) for index in range(count))
            if not place:
                yield Figure("add in bulk", "", count / (time.perf_counter() - started), "jobs/s")
            self._drain(concurrency)
            yield Figure("drain no-op", f"concurrency {concurrency}", count / self._span(count), "jobs/s")
            self.clean_up()

    def io(self) -> Iterator[Figure]:
        count, concurrency = max(500, self.plan.jobs // 4), max(self.plan.concurrency)
        self._prepare(count)
        self._task(tasks.wait).enqueue_many(((index, 0.01), {}) for index in range(count))
        self._drain(concurrency)
        yield Figure("10 ms of I/O", f"concurrency {concurrency}", count / (self._span(count) + 0.01), "jobs/s")

    def pickup(self) -> Iterator[Figure]:
        task = self._task(tasks.noop)
        with self._worker("--concurrency", "10"):
            for rate in self.plan.rates:
                count = max(1, int(rate * self.plan.seconds))
                self._warm_up(task)
                self._prepare(count)
                start = time.time() + 0.1
                # Counted from when they should be sent, also when the sender is late: users wait either way.
                due = [start + index / rate for index in range(count)]

                def send(thread: int, due: Sequence[float] = due) -> Iterator[None]:
                    for index in range(thread, len(due), self.plan.threads):
                        time.sleep(max(0.0, due[index] - time.time()))
                        yield
                        task.enqueue(index)

                self._in_threads(send)
                self._wait(count)
                yield from self._latencies(f"pickup at {rate}/s", due)

    def delayed(self) -> Iterator[Figure]:
        count = 200
        task = self._task(tasks.noop)
        with self._worker("--concurrency", "10"):
            self._warm_up(task)
            self._prepare(count)
            due = []
            for index in range(count):
                delay = 1.0 + index * 0.01
                # By this machine's clock, before the insert: what that takes is part of the lateness.
                due.append(time.time() + delay)
                task.using(run_after=timedelta(seconds=delay)).enqueue(index)
            self._wait(count)
            yield from self._latencies("late when delayed", due)

    def retries(self) -> Iterator[Figure]:
        count = max(100, self.plan.jobs // 20)
        self._prepare(count)
        self._task(tasks.fail_twice).enqueue_many(((index,), {}) for index in range(count))
        self._drain(10)
        yield Figure("fail twice, then succeed", "", count / self._span(count, times=3), "jobs/s")

    # Helpers

    def _in_threads(self, work: Callable[[int], Iterator[None]]) -> float:
        """Do ``work``, step by step, with a number in each of the threads; return the seconds until the last has ended."""
        errors: list[BaseException] = []
        is_over = threading.Event()

        def run(number: int) -> None:
            try:
                for _ in work(number):
                    if is_over.is_set():
                        return
            except BaseException as error:
                errors.append(error)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=run, args=(number,)) for number in range(self.plan.threads)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:  # what they added after the deletion would stay
            is_over.set()
            for thread in threads:
                thread.join()
            raise
        if errors:
            raise errors[0]
        return time.perf_counter() - started

    def _task(self, task: Task) -> Task:
        return task.using(backend=self.alias)

    def _prepare(self, count: int) -> None:
        if count > CAPACITY:
            raise BenchmarkRefused(f"At most {CAPACITY:,} jobs.")
        current().clear(count)

    @contextmanager
    def _checked(self, count: int) -> Iterator[None]:
        """Run afterwards what was added in the block."""
        self._prepare(count)
        yield
        self._drain(10)
        self._check(count)

    def _check(self, count: int, times: int = 1) -> None:
        wrong = [index for index, (runs, *_) in enumerate(current().entries(count)) if runs != times]
        if wrong:
            raise BenchmarkFailed(
                f"{len(wrong):,} of {count:,} jobs did not run {times} time(s), the first is {wrong[0]}."
            )
        left = self.engine.count(JobFilter(queue=tasks.QUEUE, states=_WAITING), limit=1).count
        if left:
            raise BenchmarkFailed("Jobs are left that should have ended.")

    def _span(self, count: int, times: int = 1) -> float:
        """Return the seconds from the first start to the last, of jobs that were all run."""
        self._check(count, times)
        entries = current().entries(count)
        return max(max(last for *_, last in entries) - min(first for _, first, _ in entries), 1e-6)

    def _latencies(self, name: str, due: Sequence[float]) -> Iterator[Figure]:
        self._check(len(due))
        entries = current().entries(len(due))
        late = sorted(1000 * (start - wanted) for (_, start, _), wanted in zip(entries, due, strict=True))
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            yield Figure(name, label, late[min(len(late) - 1, int(len(late) * share))], "ms", False)

    def _warm_up(self, task: Task) -> None:
        self._prepare(1)
        task.enqueue(0)
        self._wait(1)
        time.sleep(0.2)

    def _wait(self, count: int) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT
        while current().executions(count) < count or self._is_busy():
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"Only {current().executions(count):,} of {count:,} jobs ran in time.")
            time.sleep(0.05)

    def _is_busy(self) -> bool:
        states = (*_WAITING, JobState.EXECUTING)
        return bool(self.engine.count(JobFilter(queue=tasks.QUEUE, states=states), limit=1).count)

    def _drain(self, concurrency: int) -> None:
        with self._worker("--drain", "--concurrency", str(concurrency)) as process:
            try:
                code = process.wait(_LONGEST_WAIT)
            except subprocess.TimeoutExpired:
                raise BenchmarkFailed("The worker did not come to an end.") from None
        if code:
            raise BenchmarkFailed(f"The worker ended with code {code}.")

    @contextmanager
    def _worker(self, *args: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "django", "runworker", "-v", "0", "--no-cron", "--backend", self.alias]
        environment = {
            **os.environ,
            VARIABLE: os.environ[VARIABLE],
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        # What the retries log would bury what the command says.
        process = subprocess.Popen(
            [*command, "--queues", tasks.QUEUE, *args],
            env=environment,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the command: after a second signal a worker would give up what it runs
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
