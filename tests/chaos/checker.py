"""Say what is wrong with a run, from the notes of everybody. Pure, and so tested with planted violations.

When is a further execution explained? Take two executions of one job that follow each other, A and B:

- A said that the job wants to run again (a retry, a snooze, a failure with attempts left): B is natural.
- A's process was killed while A ran, or within ``ACK_SECONDS`` of its end: its outcome may not have been stored. Time
  during which the store was away, or A's process stopped, does not count, with ``RECOVERY_SECONDS`` after it.
- A's worker fell silent: nobody could beat for it for ``SILENT_SECONDS`` or more, because its supervisor was stopped, or was killed
  while the worker itself was stopped. Then others may take its jobs while A still runs.
- B is the stale one of the two: its process began it in the second in which it went on after such a stop.
- A's process was told to leave (SIGTERM, to it or to its supervisor) and A ran on for longer than it may, or its outcome could not
  be stored for as long.
- A's supervisor was told a second time to leave while A ran: it hands back what runs.
- A is transactional and the store went away around its commit.
- A's process was told by its own task to end its event loop, and A was cut off by that.
- A broke its own connection and said so ("unclear"): it may be completed or run again.
- The store crashed and forgot what it had answered last (Redis that syncs each second), A's claim or outcome among it.

What was acknowledged in the time that the store forgot may be lost, with what became of it. It is counted.

A kill of some other process, or an outage alone, explains nothing: outcomes are kept and stored later. B may overlap
with A only when A's worker fell silent or had to leave, or the store forgot A.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

ACK_SECONDS = 2.0
RECOVERY_SECONDS = 12.0
SILENT_SECONDS = 8.0
RELAY_SECONDS = 30.0
"""What stayed in the outbox is sent when it is ten seconds old, by the next look of the leader, which may have to be elected first."""
LEAVE_SECONDS = 28.0
CLAIM_SECONDS = 1.0
"""What is fetched is begun, or handed back, within that time."""
KILL_SECONDS = 0.2
"""Between a kill and its note, or the note and the kill."""

_ENDS = {
    "hopeless": {"discarded"},
    "discard": {"discarded"},
    "cancel": {"cancelled"},
    "poison": {"discarded", "completed"},
}
"""How jobs of a task end; all others are completed."""
_TRANSACTIONAL = {"write", "fork_and_write", "end_transaction"}
_EFFECTS = {"write": (1, 1), "fork_and_write": (2, 2), "end_transaction": (1, None), "write_alone": (1, None)}
"""How many effects a completed job of a task has, at least and at most."""


class Span(NamedTuple):
    start: float
    end: float

    def meets(self, start: float, end: float) -> bool:
        return self.start <= end and self.end >= start


@dataclass(slots=True)
class Execution:
    job: int
    attempt: int
    pid: int
    start: float
    queue: str = "default"
    end: float | None = None
    outcome: str = ""
    """``returned``, ``again``, ``unclear``, ``ended`` or ``broken off``; '' while there is no end."""


class Final(NamedTuple):
    state: str
    attempt: int
    max_attempts: int
    live: bool = False


@dataclass
class History:
    enqueued: dict[int, str] = field(default_factory=dict)
    """Acknowledged jobs and their tasks."""
    rolled_back: set[int] = field(default_factory=set)
    executions: dict[int, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    kills: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    terms: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    stops: dict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))
    outages: list[Span] = field(default_factory=list)
    forgotten: list[Span] = field(default_factory=list)
    """What happened in such a time the store may not know any more."""
    acknowledged: dict[int, float] = field(default_factory=dict)
    """When; of jobs of a transaction, when it had committed."""
    followed_up: set[int] = field(default_factory=set)
    """Jobs of a transaction: where the store takes no part in it, they arrive when the store is back."""
    loops: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When a task ended the event loop of its process."""
    copies: dict[int, int] = field(default_factory=dict)
    """Process that a task's fork made → the worker that it is a copy of."""
    held: list[tuple[float, list[tuple[int, int, str]]]] = field(default_factory=list)
    """What executed according to the store at a time: job, claim, worker."""
    supervisor_of: dict[int, int] = field(default_factory=dict)
    process_of: dict[str, int] = field(default_factory=dict)
    """Worker → its process."""
    finals: dict[int, Final] = field(default_factory=dict)
    effects: Counter[int] = field(default_factory=Counter)
    slots: dict[str, int] = field(default_factory=dict)
    """How many jobs of a queue one process may run at once."""
    problems: list[str] = field(default_factory=list)
    """What the run itself saw: leftovers, log lines, exit codes."""

    def add(self, notes: Iterable[Mapping[str, Any]]) -> None:
        """Take the notes of the ledger in."""
        for note in sorted(notes, key=lambda note: note["at"]):
            at = note["at"]
            match note["kind"]:
                case "enqueued":
                    self.problems += [f"The id {id} was given twice." for id in note["jobs"] if id in self.enqueued]
                    self.enqueued.update(dict.fromkeys(note["jobs"], note["task"]))
                    self.acknowledged.update(dict.fromkeys(note["jobs"], at))
                    if note.get("transaction"):
                        self.followed_up.update(note["jobs"])
                case "rolled back":
                    self.rolled_back.update(note["jobs"])
                case "start":
                    execution = Execution(note["job"], note["attempt"], note["pid"], at, note["queue"])
                    self.executions[note["job"]].append(execution)
                case "end":
                    for execution in self.executions[note["job"]]:
                        if (execution.pid, execution.attempt, execution.end) == (note["pid"], note["attempt"], None):
                            execution.end, execution.outcome = at, note["outcome"]
                            break
                case "kill":
                    for pid in note["pids"]:
                        self.kills[pid].append(at)
                case "term":
                    for pid in note["pids"]:
                        self.terms[pid].append(at)
                case "stopped":
                    for pid in note["pids"]:
                        self.stops[pid].append(Span(note["since"], at))
                case "outage":
                    self.outages.append(Span(note["since"], at))
                case "loop":
                    self.loops[note["pid"]].append(at)
                case "copy":
                    self.copies[note["pid"]] = note["parent"]
                case "held":
                    self.held.append((at, [(job, claim, worker) for job, claim, worker in note["claims"]]))
                case "problem":
                    self.problems.append(note["text"])
                case "forgotten":
                    self.forgotten.append(Span(note["since"], at))

    def may_be_lost(self, job: int) -> bool:
        """Whether the store forgot that it took this job."""
        at = arrived = self.acknowledged[job]
        if job in self.followed_up:
            arrived = max((o.end + RELAY_SECONDS for o in self.outages if o.meets(at - 1, at)), default=at)
        return any(span.meets(at, arrived) for span in self.forgotten)

    def lost(self) -> list[int]:
        return [job for job in self.enqueued if job not in self.finals]


def check(history: History) -> list[str]:
    """Return a sentence, with the job's history, for everything that must not be."""
    checker = _Checker(history)
    return [*history.problems, *checker.jobs(), *checker.slots()]


class _Checker:
    def __init__(self, history: History) -> None:
        self.h = history
        self.unnoted = 0

    def jobs(self) -> Iterator[str]:
        h = self.h
        for job in sorted({*h.enqueued, *h.executions, *h.finals, *h.rolled_back}):
            for sentence in self._job(job):
                yield f"Job {job} ({h.enqueued.get(job, 'not acknowledged')}): {sentence}\n{self._tell(job)}"

    def _job(self, job: int) -> Iterator[str]:
        h = self.h
        final, executions = h.finals.get(job), h.executions.get(job, [])
        if job in h.rolled_back and (final or executions):
            yield "its transaction was rolled back, and it is there."
        if job in h.enqueued and final is None and not h.may_be_lost(job):
            yield "it was acknowledged, and is gone."
        if final is not None:
            if final.live:
                yield f"it never ended: {final.state}."
            elif job in h.enqueued and final.state not in _ENDS.get(h.enqueued[job], {"completed"}):
                yield f"it ended as {final.state}."
            if final.attempt > final.max_attempts:
                yield f"attempt {final.attempt} of {final.max_attempts}."
            if final.state == "completed" and not any(e.outcome in ("returned", "unclear") for e in executions):
                yield "it is completed, and no execution of it returned."
            if any(e.attempt > final.max_attempts for e in executions):
                yield "it was started more often than it has attempts."
            if final.attempt > len(executions) and not (h.kills or h.stops):
                yield "an attempt was spent that nobody started."
        if (expected := _EFFECTS.get(h.enqueued.get(job, ""))) is not None:
            is_completed = final is not None and final.state == "completed"
            least, most = expected if is_completed else (0, 0 if expected[1] is not None else None)
            if h.effects[job] < least or (most is not None and h.effects[job] > most):
                yield f"its effect is there {h.effects[job]} times instead of {least}."
        for e in executions:
            if (
                e.pid in h.copies and e.pid not in h.supervisor_of
            ):  # a worker may have got the number of a copy that is gone
                yield f"attempt {e.attempt} ran in process {e.pid}, the copy that a fork made of {h.copies[e.pid]}."
        for a, b in pairwise(executions):
            reason = self._explain(a, b)
            if not reason:
                yield f"the execution of attempt {b.attempt} in process {b.pid} has no explanation."
            elif b.start < self._ended(a) and reason not in ("silent", "left", "forgotten"):
                yield f"attempt {b.attempt} in process {b.pid} overlaps with the execution before, which was {reason}."

    def _explain(self, a: Execution, b: Execution) -> str:
        if a.outcome in ("again", "unclear") and a.end is not None and a.end <= b.start:
            return "natural"
        unstored = self._unstored_until(a)
        if any(
            a.start - KILL_SECONDS <= at <= min(b.start, unstored) + KILL_SECONDS for at in self.h.kills.get(a.pid, ())
        ):
            return "killed"
        if (a.end is None or a.outcome == "broken off") and any(
            a.start <= at <= b.start and (a.end is None or at <= a.end) for at in self.h.loops.get(a.pid, ())
        ):
            return "cut off"
        if self._fell_silent(a, b) or self._woke_up_late(b):
            return "silent"
        if self._had_to_leave(a):
            return "left"
        if any(span.meets(a.start - CLAIM_SECONDS, unstored) and b.start >= span.start for span in self.h.forgotten):
            return "forgotten"
        if self.h.enqueued.get(a.job) in _TRANSACTIONAL and any(
            span.meets(a.start, (a.end or b.start) + ACK_SECONDS) for span in self.h.outages
        ):
            return "uncommitted"
        return ""

    def _unstored_until(self, a: Execution) -> float:
        """Until when the outcome of an execution may have been in its process's memory only."""
        if a.end is None:
            return float("inf")
        until = a.end + ACK_SECONDS
        hindrances = sorted([*self.h.outages, *self.h.stops.get(a.pid, ())])
        for span in hindrances:
            if span.meets(a.end - RECOVERY_SECONDS, until):
                until = max(until, span.end + RECOVERY_SECONDS)
        return until

    def _fell_silent(self, a: Execution, b: Execution) -> bool:
        h = self.h
        supervisor = h.supervisor_of.get(a.pid, 0)
        end = self._unstored_until(a)
        for span in h.stops.get(supervisor, ()):
            if span.end - span.start >= SILENT_SECONDS and span.meets(a.start, min(end, b.start)):
                return b.start >= span.start + SILENT_SECONDS
        orphaned = min(h.kills.get(supervisor, [float("inf")]))
        for span in h.stops.get(a.pid, ()):
            silence = Span(max(span.start, orphaned), span.end)
            if silence.end - silence.start >= SILENT_SECONDS and silence.meets(a.start, min(end, b.start)):
                return b.start >= silence.start + SILENT_SECONDS
        return False

    def _woke_up_late(self, b: Execution) -> bool:
        """Whether B is the stale one: begun in the moment in which its process went on after a long stop."""
        spans = self.h.stops.get(b.pid, ())
        return any(s.end - s.start >= SILENT_SECONDS and 0 <= b.start - s.end + KILL_SECONDS < 1 for s in spans)

    def _had_to_leave(self, a: Execution) -> bool:
        end = self._unstored_until(a)
        supervisor = self.h.supervisor_of.get(a.pid, 0)
        told = self.h.terms.get(supervisor, ())
        if any(a.start <= at <= end for at in sorted(told)[1:]):
            return True
        asked = [*self.h.terms.get(a.pid, ()), *told, *self.h.kills.get(supervisor, ())]
        return any(at + LEAVE_SECONDS <= end and (a.end is None or at <= end) for at in asked)

    def _ended(self, a: Execution) -> float:
        if a.end is not None:
            return a.end
        # A process that its own supervisor killed tells nobody when; it was silent before, and that explains the overlap.
        ends = (*self.h.kills.get(a.pid, ()), *self.h.loops.get(a.pid, ()))
        killed = [at - KILL_SECONDS for at in ends if at >= a.start - KILL_SECONDS]
        return min(killed, default=float("inf"))

    def slots(self) -> Iterator[str]:
        """No process runs more jobs of a queue at once than it has slots."""
        by_place: dict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
        for executions in self.h.executions.values():
            for e in executions:
                by_place[e.pid, e.queue] += [(e.start, 1), (self._ended(e), -1)]
        for (pid, queue), changes in by_place.items():
            running = 0
            for _, change in sorted(changes):
                running += change
                if running > self.h.slots.get(queue, 10**6):
                    yield f"Process {pid} ran {running} jobs of {queue!r} at once."
                    break

    def _tell(self, job: int) -> str:
        h = self.h
        lines = [f"    final: {h.finals.get(job)}, effects: {h.effects[job]}"]
        for e in h.executions.get(job, ()):
            end = f"{e.end:.3f} {e.outcome}" if e.end is not None else "no end"
            supervisor = h.supervisor_of.get(e.pid, 0)
            lines.append(f"    {e.start:.3f} – {end}  attempt {e.attempt}, process {e.pid} of supervisor {supervisor}")
            for pid in (e.pid, supervisor):
                for name, times in (("killed", h.kills), ("SIGTERM", h.terms), ("stopped", h.stops)):
                    if times.get(pid):
                        lines.append(f"        {pid} {name}: {_format(times[pid])}")
        if h.outages and h.executions.get(job):
            first, last = h.executions[job][0].start - 20, h.executions[job][-1].start + 20
            lines.append(f"    outages: {_format([o for o in h.outages if o.meets(first, last)])}")
        return "\n".join(lines)


def _format(times: Iterable[Any]) -> str:
    return ", ".join(f"{t.start:.3f}–{t.end:.3f}" if isinstance(t, Span) else f"{t:.3f}" for t in times)
