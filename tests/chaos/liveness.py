"""Whether workers that live go on: what they hold begins and is settled, and each of them begins what waits.

``Watcher`` notes during the run which claims the store knows; ``idle_claims`` says afterwards which of them stood still
although nothing was wrong with their worker. ``probe`` asks at the end, when all is calm, every worker to begin something.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path

from django.db import DatabaseError, InterfaceError

from djqueue.exceptions import DjqueueError
from djqueue.jobs.states import JobState
from tests import backlog
from tests.chaos import tasks
from tests.chaos.checker import Execution, History, Span
from tests.chaos.ledger import Ledger, read

STILL_SECONDS = 25.0
"""A claim may stand for so long, undisturbed, without a running job."""
AFTERMATH_SECONDS = 5.0
"""How much longer than an outage its disturbance lasts."""
UNHEARD_SECONDS = 30.0
"""The same of a stopped process, whose jobs others may have to find."""
PROBE_SECONDS = 90.0


class Watcher(threading.Thread):
    """Note every few seconds what executes according to the store."""

    def __init__(self, ledger: Ledger, seconds: float = 3.0) -> None:
        super().__init__(name="chaos-watcher", daemon=True)
        self._ledger = ledger
        self._seconds = seconds
        self._stop_event = threading.Event()

    def stop(self) -> None:
        self._stop_event.set()

    def run(self) -> None:
        while not self._stop_event.wait(self._seconds):
            try:
                jobs = backlog.jobs(JobState.EXECUTING)
            except (DatabaseError, InterfaceError, DjqueueError):
                backlog.close()
                continue
            claims = [(job.id, job.claim, str(job.attempted_by)) for job in jobs if job.state is JobState.EXECUTING]
            self._ledger.note("held", claims=claims)
        backlog.close()


def probe(
    directory: Path, ledger: Ledger, living: Callable[[], Set[int]], wait: Callable[[float], None]
) -> Iterator[str]:
    """Enqueue until every living worker has begun a sync and an async job; yield a sentence for each that does not."""
    began = time.monotonic()
    enqueued: dict[str, set[int]] = {"nap": set(), "anap": set()}
    while True:
        for name, ids in enqueued.items():
            new = [int(id) for id in getattr(tasks, name).enqueue_many([((0.1,), {})] * 24).ids]
            ledger.note("enqueued", jobs=new, task=name, arguments=[0.1])
            ids.update(new)
        wait(0.5)
        starts = [note for note in read(directory) if note["kind"] == "start" and note["at"] >= began]
        pids = living()
        missing = {
            name: sorted(pids - {note["pid"] for note in starts if note["job"] in ids})
            for name, ids in enqueued.items()
        }
        if not any(missing.values()):
            return
        if time.monotonic() - began > PROBE_SECONDS:
            for name, workers in missing.items():
                for pid in workers:
                    yield f"Process {pid} lives and began no job of {name!r} in {PROBE_SECONDS:g} s, although they waited."
            return


def idle_claims(h: History) -> Iterator[str]:
    """Yield a sentence for every claim that stood for long while no job of it ran and nothing hindered its worker."""
    seen: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    for at, claims in h.held:
        for job, claim, worker in claims:
            seen[job, claim, worker].append(at)
    for (job, claim, worker), times in seen.items():
        pid = h.process_of.get(worker)
        if pid is None:
            continue
        supervisor = h.supervisor_of[pid]
        # From there on others have to find what it held.
        until = min([times[-1], *h.kills.get(supervisor, ()), *h.terms.get(supervisor, ())])
        since = max([times[0], *(_ended(h, e) for e in h.executions.get(job, ()) if e.pid == pid and e.start <= until)])
        hindrances = [
            *(Span(o.start, o.end + AFTERMATH_SECONDS) for o in h.outages),
            *(Span(s.start, s.end + UNHEARD_SECONDS) for whom in (pid, supervisor) for s in h.stops.get(whom, ())),
        ]
        if (still := until - since - _covered(hindrances, since, until)) > STILL_SECONDS:
            yield (
                f"Job {job} ({h.enqueued.get(job, 'not acknowledged')}): process {pid} held claim {claim} from {since:.1f} to"
                f" {until:.1f}, {still:.0f} s of it undisturbed, without running it."
            )


def _ended(h: History, e: Execution) -> float:
    """When an execution ended or was cut off."""
    if e.end is not None:
        return e.end
    return min((at for at in (*h.kills.get(e.pid, ()), *h.loops.get(e.pid, ())) if at >= e.start), default=float("inf"))


def _covered(spans: Iterable[Span], start: float, end: float) -> float:
    """How much of the time from start to end these spans cover together."""
    covered, reached = 0.0, start
    for span in sorted(spans):
        begin, finish = max(span.start, reached), min(span.end, end)
        if finish > begin:
            covered += finish - begin
            reached = finish
    return covered
