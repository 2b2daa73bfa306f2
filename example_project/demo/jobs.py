"""Read what became of the demonstration's jobs, whichever store they are in.

A site that wants to know about one job asks ``task.get_result(id)``. For figures about thousands of them there is the
engine of a backend: ``counts`` is cheap at any time, ``newest`` reads whole jobs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import quantiles

from djqueue.jobs.lists import JobFilter
from djqueue.jobs.records import Job
from djqueue.stores import store


def highest_id() -> int:
    """Jobs with a greater id were enqueued after this moment."""
    return max((job.id for job in store().engine.newest(JobFilter(), limit=1).jobs), default=0)


def has_workers() -> bool:
    """Whether some worker gave a sign of life in the last ten seconds."""
    return any(not worker.is_dead and worker.silent_seconds < 10 for worker in store().engine.workers())


def is_at_rest() -> bool:
    """Whether every job has ended. Then no job can enqueue another, either."""
    return not any(queue.states for queue in store().engine.counts())


def jobs_after(id: int) -> Iterator[Job]:
    """Yield the jobs that are newer than this one, page by page, the newest first."""
    before: int | None = None
    while True:
        page = store().engine.newest(JobFilter(), before=before, limit=1000)
        yield from (job for job in page.jobs if job.id > id)
        before = page.before
        if before is None or before <= id + 1:
            return


@dataclass
class Tally:
    """How many jobs there are, by task and state."""

    states: dict[str, Counter[str]]

    @property
    def enqueued(self) -> int:
        return sum(counter.total() for counter in self.states.values())

    @property
    def ended(self) -> int:
        return sum(self.ended_of(task) for task in self.states)

    def ended_of(self, task: str) -> int:
        return sum(self.states[task][state] for state in ("completed", "discarded", "cancelled"))


def tally(after: int) -> Tally:
    """Count the jobs after this id. While they run, the pages are of different moments: good enough to look at."""
    states: dict[str, Counter[str]] = defaultdict(Counter)
    for job in jobs_after(after):
        states[job.task][job.state] += 1
    return Tally(states)


@dataclass
class TaskFigures:
    outcomes: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    seconds: list[float] = field(default_factory=list)
    began: float = float("inf")
    ended: float = 0.0

    def add(self, state: str, attempt: int, started: float, finished: float) -> None:
        self.outcomes[state] += 1
        self.retried += attempt > 1
        self.seconds.append(finished - started)
        self.began = min(self.began, started)
        self.ended = max(self.ended, finished)

    @property
    def count(self) -> int:
        return self.outcomes.total()

    def percentile(self, percent: int) -> float:
        if len(self.seconds) < 2:
            return self.seconds[0] if self.seconds else 0.0
        return quantiles(self.seconds, n=100, method="inclusive")[percent - 1]

    @property
    def per_second(self) -> float:
        return self.count / max(self.ended - self.began, 0.001)


def figures(after: int) -> dict[str, TaskFigures]:
    """Measure the finished jobs after this id, by task. The duration is that of the last attempt."""
    by_task: dict[str, TaskFigures] = defaultdict(TaskFigures)
    for job in jobs_after(after):
        began = max(at for at in (job.started_at, job.attempted_at) if at)
        by_task[job.task].add(job.state, job.attempt, began.timestamp(), job.finished_at.timestamp())
    return dict(by_task)
