"""The server and three supervisors with their workers; does to them what the plan says, and notes when."""

from __future__ import annotations

import heapq
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.chaos.hostile import NOISE
from tests.chaos.ledger import Ledger
from tests.chaos.plan import PROCESSES, SUPERVISORS, Act
from tests.chaos.stores import Store

SLOTS = {"default": 8, "slow": 2, "single": 1}
_RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (\w+) (\S+)")
_MEANT = {
    "job.stop",
    "job.after_commit",
    "worker.lost",
    "worker.silent",
    "worker.declared_dead",
    "loop.interrupted",
}
"""Events that may be errors in a run like this one."""
_ODD = ("Traceback", "Exception in", "Exception ignored", "Fatal")


class Member:
    """A supervisor process."""

    def __init__(self, place: int, log: Path, env: dict[str, str]) -> None:
        self.place = place
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [
                    *[sys.executable, "-m", "django", "runworker", "--worker-name", f"w{place}"],
                    *["--processes", str(PROCESSES), "--concurrency", str(SLOTS["default"])],
                    *["--queues", f"default,slow:{SLOTS['slow']},single:{SLOTS['single']}"],
                ],
                env=env,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.is_leaving = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def has_begun(self) -> bool:
        """Whether it had workers. Before, while Python still imports, SIGTERM ends it in the ordinary way."""
        return "worker.start" in self.text()

    def text(self) -> str:
        """What it and its workers have written, without what a task floods the log with."""
        return self.log.read_text(errors="replace").replace(NOISE, "")

    def children(self) -> list[int]:
        return sorted(pid for pid, parent, _ in _processes() if parent == self.pid)


class Fleet:
    def __init__(self, store: Store, directory: Path, ledger: Ledger, env: dict[str, str]) -> None:
        self.store = store
        self._directory = directory
        self._ledger = ledger
        self._env = env
        self._generations = itertools.count(1)
        self.members: list[Member | None] = [None] * SUPERVISORS
        self.past: list[Member] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._away_since: float | None = None
        self.problems: list[str] = []
        self.counts: dict[str, int] = {}

    def start(self) -> None:
        for place in range(SUPERVISORS):
            self._spawn(place)

    def _spawn(self, place: int) -> None:
        if self.members[place] is None:
            log = self._directory / f"worker-{place}-{next(self._generations)}.log"
            self.members[place] = Member(place, log, self._env)

    def wait(self, until: float) -> None:
        """Pass the time: do what has become due, and replace supervisors that have ended."""
        while True:
            self._reap()
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            if now >= until:
                return
            due = self._later[0][0] if self._later else until
            time.sleep(max(0.0, min(due, until, now + 0.1) - now))

    def _at(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), call))

    def _reap(self) -> None:
        for place, member in enumerate(self.members):
            if member is not None and (code := member.process.poll()) is not None:
                self.members[place] = None
                self.past.append(member)
                if not member.is_leaving:
                    self.problems.append(f"Supervisor {place} ended by itself with code {code}; see {member.log}.")
                    self._at(1, lambda place=place: self._spawn(place))  # type: ignore[misc]
                elif code not in (0, -signal.SIGKILL) and not (code == -signal.SIGTERM and not member.has_begun()):
                    self.problems.append(f"Supervisor {place} ended with code {code} after SIGTERM; see {member.log}.")

    def do(self, act: Act) -> None:
        self.counts[act.what] = self.counts.get(act.what, 0) + 1
        verb, _, whom = act.what.partition(" ")
        if whom in ("child", "supervisor", "both"):
            member = self.members[act.supervisor]
            if member is None:
                return
            children = member.children()
            pids = {"child": [children[act.child % len(children)]] if children else [], "supervisor": [member.pid]}
            # First the children: a supervisor that sees one die would start another that we do not know.
            targets = pids.get(whom, [member.pid, *children])
            if verb == "kill":
                self._kill(member, targets, act.seconds)
            elif verb == "term":
                self._term(member, targets, act.seconds)
            else:
                self._stop(targets, act.seconds)
        elif verb == "terminate":
            self._end_connections(share=0.3 if whom == "some" else 1.0)
        elif verb == "restart":
            if self._away_since is None:
                with self._outage():
                    self.store.server.restart()
        elif verb == "away":
            self._go_away(act.seconds)
        elif verb == "flush":
            self.store.refuse(whom, True)
        elif verb == "refuse":
            self._refuse(whom, act.seconds)
        else:
            self._crash(is_power_cut=verb == "power")

    def _kill(self, member: Member, pids: list[int], seconds: float) -> None:
        if member.pid in pids:
            self._replace(member, seconds)
        _send(pids, signal.SIGKILL)
        self._ledger.note("kill", pids=pids, by="plan")  # afterwards: what they began until then counts as killed

    def _term(self, member: Member, pids: list[int], seconds: float) -> None:
        self._ledger.note("term", pids=pids)
        _send(pids, signal.SIGTERM)
        if member.pid in pids and not member.is_leaving:
            self._replace(member, seconds)

    def _replace(self, member: Member, seconds: float) -> None:
        """Start a successor so much later, or when this one has ended."""
        member.is_leaving = True

        def succeed() -> None:
            if self.members[member.place] is member:
                self._at(0.2, succeed)
            else:
                self._spawn(member.place)

        self._at(seconds, succeed)

    def _stop(self, pids: list[int], seconds: float) -> None:
        since = time.monotonic()
        _send(pids, signal.SIGSTOP)

        def resume() -> None:
            _send(pids, signal.SIGCONT)
            self._ledger.note("stopped", pids=pids, since=since)

        self._at(seconds, resume)

    @contextmanager
    def _outage(self) -> Iterator[None]:
        since = time.monotonic()
        try:
            yield
        finally:
            self._ledger.note("outage", since=since)

    def _end_connections(self, share: float) -> None:
        if self._away_since is None:
            with self._outage():
                self.store.end_connections(share)

    def _go_away(self, seconds: float) -> None:
        if self._away_since is not None:
            return
        self._away_since = time.monotonic()
        forgotten_since = self.store.crash()

        def come_back() -> None:
            assert self._away_since is not None
            self.store.server.start()
            self._ledger.note("outage", since=self._away_since)
            self._forget(forgotten_since)
            self._away_since = None

        self._at(seconds, come_back)

    def _crash(self, *, is_power_cut: bool) -> None:
        if self._away_since is None:
            with self._outage():
                since = self.store.crash(is_power_cut=is_power_cut)
                self.store.server.start()
            self._forget(since)

    def _forget(self, since: float | None) -> None:
        if since is not None:
            self._ledger.note("forgotten", since=since)

    def _refuse(self, what: str, seconds: float) -> None:
        if self._away_since is not None:
            return
        since = time.monotonic()
        self.store.refuse(what, True)

        def end() -> None:
            if self._away_since is not None:
                self._at(1, end)
                return
            self.store.refuse(what, False)
            self._ledger.note("outage", since=since)

        self._at(seconds, end)

    def calm_down(self) -> None:
        """Undo what still lasts: everything is back and runs at the end."""
        while self._later:
            self.wait(self._later[0][0])

    def stop(self, seconds: float = 75) -> None:
        """SIGTERM to all; what does not end in time is a problem, and killed."""
        for member in filter(None, self.members):
            member.is_leaving = True
            _send([member.pid], signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while any(self.members) and time.monotonic() < deadline:
            self.wait(time.monotonic() + 0.1)
        for member in filter(None, self.members):
            self.problems.append(f"Supervisor {member.place} did not end within {seconds:g} s; see {member.log}.")
        self.kill()

    def kill(self) -> None:
        for member in filter(None, self.members):
            _send([*member.children(), member.pid], signal.SIGCONT)
            with suppress(ProcessLookupError):
                os.killpg(member.pid, signal.SIGKILL)
            member.process.wait(10)
        for pid in self.survivors():
            _send([pid], signal.SIGKILL)

    def survivors(self) -> list[int]:
        """Workers of this run that still live, and what their tasks have started."""
        groups = {member.pid for member in (*self.past, *filter(None, self.members))}
        return [pid for pid, _, group in _processes() if group in groups]

    def supervisor_of(self) -> dict[int, int]:
        """Process id of each worker → that of its supervisor."""
        return {pid: supervisor for _, pid, supervisor in self._workers()}

    def process_of(self) -> dict[str, int]:
        """Id of each worker → its process id."""
        return {worker: pid for worker, pid, _ in self._workers()}

    def _workers(self) -> Iterator[tuple[str, int, int]]:
        """Yield id, process and supervisor of each worker, by the logs."""
        for member in [*self.past, *filter(None, self.members)]:
            for worker, pid in re.findall(r"worker\.start .* id=(\S+) pid=(\d+)", member.text()):
                yield worker, int(pid), member.pid

    def log_problems(self) -> Iterator[str]:
        """Yield errors that nothing in the plan explains, and tracebacks that are no task's."""
        for member in self.past:
            level = event = ""
            for number, line in enumerate(member.text().splitlines(), 1):
                if match := _RECORD.match(line):
                    level, event = match.groups()
                    if level in ("ERROR", "CRITICAL") and event not in _MEANT:
                        yield f"{member.log}:{number}: {line[:500]}"
                elif event not in ("job.stop", "job.after_commit", "loop.interrupted") and (
                    line.startswith(_ODD) or "Warning:" in line
                ):
                    yield f"{member.log}:{number}: after {event}: {line[:500]}"


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield (process, parent, process group) of every process that is no zombie."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                state, parent, group, *_ = Path(entry.path, "stat").read_text().rpartition(") ")[2].split()
                if state != "Z":
                    yield int(entry.name), int(parent), int(group)
