"""Read what became of the demonstration's jobs.

A site that wants to know about one job asks ``task.get_result(id)``. For figures about thousands of them,
djqueue's tables are ordinary Django models: ``Job`` holds what is still to do, ``FinishedJob`` the history.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import quantiles

from django.db.models import Count, F, Max
from django.db.models.functions import Coalesce, Greatest, Now

from djqueue.models import FinishedJob, Job, Worker


def highest_id() -> int:
    """Jobs with a greater id were enqueued after this moment."""
    return max(model.objects.aggregate(id=Coalesce(Max("id"), 0))["id"] for model in (Job, FinishedJob))


def has_workers() -> bool:
    """Whether some worker gave a sign of life in the last ten seconds."""
    return Worker.objects.filter(died_at=None, beat_at__gt=Now() - timedelta(seconds=10)).exists()


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

    @property
    def has_ended(self) -> bool:
        return self.ended == self.enqueued

    def ended_of(self, task: str) -> int:
        return sum(self.states[task][state] for state in ("completed", "discarded", "cancelled"))


def tally(after: int) -> Tally:
    """Count the jobs after this id, in one statement, so that no job is seen in neither table or in both."""

    def counted(model: type[Job] | type[FinishedJob]):
        return model.objects.filter(id__gt=after).order_by().values_list("task", "state").annotate(count=Count("*"))

    states: dict[str, Counter[str]] = defaultdict(Counter)
    for task, state, count in counted(Job).union(counted(FinishedJob), all=True):
        states[task][state] += count
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
    rows = (
        FinishedJob.objects.filter(id__gt=after)
        .annotate(last_started_at=Greatest(Coalesce(F("started_at"), F("attempted_at")), F("attempted_at")))
        .order_by("id")
        .values_list("task", "state", "attempt", "last_started_at", "finished_at")
    )
    by_task: dict[str, TaskFigures] = defaultdict(TaskFigures)
    for task, state, attempt, started_at, finished_at in rows.iterator():
        by_task[task].add(state, attempt, started_at.timestamp(), finished_at.timestamp())
    return dict(by_task)
