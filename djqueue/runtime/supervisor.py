"""Start worker processes, beat for them, and put another in the place of one that ends."""

from __future__ import annotations

import logging
import random
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from djqueue import telemetry
from djqueue.conf import Options
from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineUnavailable
from djqueue.maintenance.leader import Leader
from djqueue.maintenance.lifeline import Lifeline, Lost
from djqueue.maintenance.pruner import Pruner
from djqueue.maintenance.stager import Stager
from djqueue.records import WorkerInfo
from djqueue.runtime import child
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.heart import Heart
from djqueue.runtime.signals import SignalPipe
from djqueue.runtime.worker import ABORT, EXIT_DONE, GO, STOP, LaneSpec
from djqueue.service import Service

TICK_SECONDS = 1.0
GRACE_SECONDS = 15.0
"""How much longer than its shutdown timeout a child may take to leave before it is killed."""
_LONGEST_RESPAWN_SECONDS = 30.0
_STABLE_SECONDS = 10.0
_MOST_FAILED_STARTS = 3

EXIT_OK, EXIT_CANNOT_START = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    name: str
    backend: str
    lanes: tuple[LaneSpec, ...]
    processes: int = 1
    drain: bool = False
    max_jobs: int | None = None
    verbosity: int = 1


@dataclass(slots=True, kw_only=True, eq=False)
class Child:
    """One worker process."""

    id: UUID
    name: str
    process: subprocess.Popen[bytes]
    control: socket.socket
    claims: ClaimBlock
    started: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    is_announced: bool = False
    is_working: bool = False


class Supervisor:
    """Runs in the main thread; executes no code of the application beyond its settings."""

    def __init__(self, spec: SupervisorSpec, engine: Engine, options: Options) -> None:
        self._spec = spec
        self._engine = engine
        self._options = options
        self._hostname = socket.gethostname()
        self._children: list[Child | None] = [None] * spec.processes
        self._spawn_after = [0.0] * spec.processes
        self._failures = [0] * spec.processes
        self._is_stopping = False
        self._stop_requests = 0
        self._kill_after: float | None = None
        self._failed_starts = 0
        self._register = engine.open_worker()
        self._heart = Heart(engine.open_worker(), on_dead=self._on_declared_dead)
        self._leader = Leader(engine.open_worker(), uuid4())
        self._stager = Stager(engine.open_worker(), engine.open_listener(), is_leader=lambda: self._leader.is_leader)
        self._pruner = Pruner(engine.open_worker(), options.prune_rules(), is_leader=lambda: self._leader.is_leader)
        self._lifeline = Lifeline(engine.open_worker(), self._leader, silent=self._heart.silent, dead=self._heart.dead)
        self._leader.loops = {"stager": self._stager, "pruner": self._pruner, "lifeline": self._lifeline}
        self._declared_dead: set[UUID] = set()

    def run(self) -> int:
        """Supervise until a signal or the end of the work; return the exit code."""
        with SignalPipe({signal.SIGTERM: self._on_stop, signal.SIGINT: self._on_stop, signal.SIGCHLD: None}) as signals:
            services: list[Service] = [self._heart, self._leader, self._stager, self._pruner, self._lifeline]
            for service in services:
                service.start()
            try:
                return self._loop(signals)
            finally:
                self._kill_all()
                # Beats last: a worker that still runs jobs must not look dead.
                for service in reversed(services):
                    service.stop()
                for service in services:
                    service.join(5)
                self._register.close()

    def _loop(self, signals: SignalPipe) -> int:
        while True:
            self._reap()
            if self._failed_starts >= _MOST_FAILED_STARTS:
                telemetry.emit(
                    "djqueue.supervisor.failed", logging.CRITICAL, reason="workers die before they are ready"
                )
                return EXIT_CANNOT_START
            if not self._is_stopping:
                self._spawn_missing()
            living = [child for child in self._children if child is not None]
            if not living and not self._lifeline.has_reports and (self._is_stopping or self._is_drained()):
                return EXIT_OK
            for one in living:
                self._advance(one)
            self._obey_stop_requests()
            ready = signals.wait([one.control for one in living if not one.is_ready], self._pause())
            for one in living:
                if one.control in ready:
                    one.is_ready = one.control.recv(1) == child.READY

    # Starting

    def _spawn_missing(self) -> None:
        for place, one in enumerate(self._children):
            if one is None and time.monotonic() >= self._spawn_after[place] and not self._lifeline.has_reports:
                self._children[place] = self._spawn(place)

    def _spawn(self, place: int) -> Child:
        worker = uuid4()
        name = f"{self._spec.name}.{place + 1}"
        ours, theirs = socket.socketpair()
        claims = ClaimBlock.create()
        config: dict[str, Any] = {
            "id": str(worker),
            "name": name,
            "backend": self._spec.backend,
            "lanes": [[list(lane.queues), lane.slots] for lane in self._spec.lanes],
            "drain": self._spec.drain,
            "max_jobs": self._spec.max_jobs,
            "verbosity": self._spec.verbosity,
            "control_fd": theirs.fileno(),
            "claims_fd": claims.fd,
        }
        title = f"djqueue worker {name}"
        process = subprocess.Popen(
            child.command(config, title), pass_fds=[theirs.fileno(), claims.fd], stdin=subprocess.DEVNULL
        )
        theirs.close()
        return Child(id=worker, name=name, process=process, control=ours, claims=claims)

    def _advance(self, one: Child) -> None:
        """Bring a child to work: announced in the store first, beating, then told to go."""
        try:
            if not one.is_announced:
                self._register.register([self._info(one)])
                one.is_announced = True
                self._heart.add(one.id, one.claims)
                if self._is_stopping:
                    self._heart.set_draining(one.id)
        except EngineUnavailable as error:
            telemetry.emit("djqueue.supervisor.waiting", logging.WARNING, error=str(error))
            return
        if one.is_ready and not one.is_working:
            self._failed_starts = 0
            one.is_working = True
            self._send(one, STOP if self._is_stopping else GO)
            telemetry.emit("djqueue.worker.start", worker=one.name, id=one.id, pid=one.process.pid)

    def _info(self, one: Child) -> WorkerInfo:
        queues = {queue: lane.slots for lane in self._spec.lanes for queue in lane.queues}
        return WorkerInfo(
            id=one.id,
            name=one.name,
            hostname=self._hostname,
            pid=one.process.pid,
            queues=queues,
            concurrency=sum(lane.slots for lane in self._spec.lanes),
        )

    # Ending

    def _reap(self) -> None:
        for place, one in enumerate(self._children):
            if one is not None and (code := one.process.poll()) is not None:
                self._children[place] = None
                self._bury(one, code, place)

    def _bury(self, one: Child, code: int, place: int) -> None:
        self._heart.remove(one.id)
        self._declared_dead.discard(one.id)
        lived = time.monotonic() - one.started
        if code == EXIT_DONE and one.is_ready:
            telemetry.emit("djqueue.worker.stop", worker=one.name, lived_seconds=lived)
            self._failures[place] = 0
            if one.is_announced:
                self._forget(one)
            if self._spec.drain:
                self._spawn_after[place] = float("inf")
        else:
            reason = _reason(code)
            telemetry.emit("djqueue.worker.lost", logging.ERROR, worker=one.name, reason=reason, lived_seconds=lived)
            if not one.is_working:
                self._failed_starts += 1
            if one.is_announced:
                self._lifeline.report(Lost(one.id, one.claims.begun(), f"The worker process {reason}."))
            self._failures[place] = 1 if lived > _STABLE_SECONDS else self._failures[place] + 1
            # The first replacement comes at once; a worker that dies again and again must not keep a core busy.
            pause = (
                0.0 if self._failures[place] == 1 else min(_LONGEST_RESPAWN_SECONDS, 2.0 ** (self._failures[place] - 2))
            )
            self._spawn_after[place] = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311  jitter
        one.control.close()
        one.claims.close()

    def _forget(self, one: Child) -> None:
        # Without an answer the row falls silent, and the lifeline finds nothing to rescue.
        with suppress(EngineUnavailable):
            self._register.deregister([one.id])

    def _is_drained(self) -> bool:
        return self._spec.drain and all(after == float("inf") for after in self._spawn_after)

    def _on_declared_dead(self, worker: UUID) -> None:
        """The store says that a child of ours is dead for ever; called by the heart's thread."""
        for one in self._children:
            if one is not None and one.id == worker and worker not in self._declared_dead:
                self._declared_dead.add(worker)
                telemetry.emit("djqueue.worker.declared_dead", logging.ERROR, worker=one.name)
                # Its claims belong to others by now: nothing it does may count any more.
                one.process.kill()

    # Stopping

    def _on_stop(self) -> None:
        self._stop_requests += 1

    def _obey_stop_requests(self) -> None:
        if self._stop_requests and not self._is_stopping:
            self._is_stopping = True
            telemetry.emit("djqueue.supervisor.stopping", workers=sum(one is not None for one in self._children))
            self._leader.stop()
            self._stager.stop()
            self._pruner.stop()
            self._kill_after = time.monotonic() + self._options.shutdown_timeout_seconds + GRACE_SECONDS
            for one in filter(None, self._children):
                self._heart.set_draining(one.id)
                self._send(one, STOP)
        if self._stop_requests >= 2:
            for one in filter(None, self._children):
                self._send(one, ABORT)
        if self._kill_after is not None and time.monotonic() > self._kill_after:
            self._kill_all()

    def _kill_all(self) -> None:
        for one in filter(None, self._children):
            one.process.kill()

    def _pause(self) -> float:
        pauses = [after - time.monotonic() for after in self._spawn_after if after != float("inf")]
        return max(0.05, min([TICK_SECONDS, *(pause for pause in pauses if pause > 0)]))

    @staticmethod
    def _send(one: Child, command: bytes) -> None:
        with suppress(OSError):  # it is gone; waitpid tells
            one.control.send(command)


def _reason(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
