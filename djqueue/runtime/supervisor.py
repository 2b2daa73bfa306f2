"""Start worker processes, beat for them, and put another in the place of one that ends."""

from __future__ import annotations

import logging
import math
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from djqueue import telemetry
from djqueue.conf import Options
from djqueue.engines.protocol import Engine
from djqueue.jobs.records import WorkerInfo
from djqueue.maintenance.leader_services import Crew
from djqueue.outbox.rows import Outbox
from djqueue.runtime import child, losses, parent_settings
from djqueue.runtime.children import Child
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.heartbeat import Heart
from djqueue.runtime.leftovers import Leftovers
from djqueue.runtime.registrar import Registrar
from djqueue.runtime.signals import STOP_SIGNALS, SignalPipe
from djqueue.runtime.worker import ABORT, END_DONE, GO, RETIRE, STOP, LaneSpec
from djqueue.service import Service

TICK_SECONDS = 1.0
GRACE_SECONDS = 15.0
"""How much longer than its shutdown timeout a child may take to leave before it is killed."""
ABORT_SECONDS = 8.0
"""The same, after a second signal."""
_FAREWELL_SECONDS = 3.0
_HURRY_SECONDS = 0.5
_LONGEST_RESPAWN_SECONDS = 30.0
_SPAWN_RETRY_SECONDS = 2.0
_STABLE_SECONDS = 10.0
_MOST_FAILED_STARTS = 3

UNHEALTHY_SECONDS = 8.0
"""Without a good beat for so long: the workers have stopped fetching, and others may soon take them for dead."""
OVERDUE_SECONDS = 40.0
"""So long after a task's timeout its worker has had every chance to end it: the process is killed."""

EXIT_OK, EXIT_CANNOT_START, EXIT_NO_STORE = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    name: str
    backend: str
    lanes: tuple[LaneSpec, ...]
    processes: int = 1
    drain: bool = False
    cron: bool = False
    """Enqueue the jobs of the crontab while it leads."""
    max_jobs: int | None = None
    max_rss_mebibytes: int | None = None
    max_age_seconds: float | None = None
    verbosity: int = 1


class Supervisor:
    """Runs in the main thread; executes no code of the application beyond its settings, and, for the crontab, the import of
    its ``tasks`` modules (why: see ``maintenance/scheduler.py``)."""

    def __init__(
        self, spec: SupervisorSpec, engine: Engine, options: Options, *, outboxes: Sequence[Outbox] = ()
    ) -> None:
        """``outboxes``: where jobs for this store wait, if they do."""
        self._spec = spec
        self._engine = engine
        self._options = options
        self._hostname = socket.gethostname()
        self._settings = parent_settings.digests(spec.backend)
        self._children: list[Child | None] = [None] * spec.processes
        self._spawn_after = [0.0] * spec.processes
        self._failures = [0] * spec.processes
        self._retiring: list[Child] = []
        """Workers with a task that cannot be stopped; each has a successor in its place already."""
        self._leftovers = Leftovers()
        self.refusal = ""
        """Why the worker processes refuse to work, as a sentence."""
        self._exit_code = EXIT_OK
        self._is_unhealthy = False
        self._is_stopping = self._is_aborting = False
        self._stop_requests = 0
        self._kill_after: float | None = None
        self._failed_starts = 0
        self._signals: SignalPipe | None = None
        self._registrar = Registrar(engine, on_change=self._wake)
        self._heart = Heart(engine.open_registrar(), on_dead=self._on_declared_dead)
        self._crew = Crew(
            engine, options, silent=self._heart.silent, dead=self._heart.dead, has_cron=spec.cron, outboxes=outboxes
        )
        self._lifeline = self._crew.lifeline
        self._declared_dead: set[UUID] = set()

    def run(self) -> int:
        """Supervise until a signal or the end of the work; return the exit code."""
        with SignalPipe(dict.fromkeys(STOP_SIGNALS, self._on_stop) | {signal.SIGCHLD: None}) as self._signals:
            services: list[Service] = [self._registrar, self._heart, *self._crew.services]
            for service in services:
                service.start()
            try:
                return self._loop(self._signals)
            finally:
                self._kill_all()
                self._leftovers.kill(at_once=True)
                # Beats last: a worker that still runs jobs must not look dead.
                for service in reversed(services):
                    service.stop()
                self._join(services)

    def _join(self, services: Sequence[Service]) -> None:
        """Wait a moment for what the services say at their end: to a store that is silent they cannot say it."""
        began = time.monotonic()
        while any(service.is_alive for service in services):
            if time.monotonic() - began > (_HURRY_SECONDS if self._stop_requests >= 2 else _FAREWELL_SECONDS):
                break
            time.sleep(0.01)  # they are several, and a second signal counts too

    def _loop(self, signals: SignalPipe) -> int:
        while True:
            self._reap_orphans()
            self._reap()
            self._leftovers.kill()
            if self._failed_starts >= _MOST_FAILED_STARTS:
                telemetry.emit(
                    "djqueue.supervisor.failed", logging.CRITICAL, reason="workers die before they are ready"
                )
                return EXIT_CANNOT_START
            if not self._is_stopping:
                self._spawn_missing()
            living = self._living()
            if not living and (self._is_stopping or self._is_drained()) and not self._must_wait():
                return self._exit_code
            for one in living:
                self._advance(one)
                self._end_overdue(one)
            self._watch_store()
            if self._registrar.is_refused:
                self._refuse()
            self._obey_stop_requests()
            self._crew.watch()
            ready = signals.wait([one.control for one in living], self._pause())
            for one in living:
                if one.control in ready:
                    self._hear(one)

    def _must_wait(self) -> bool:
        """Whether something of a worker that has ended is to be done: its jobs to be rescued, its row, its processes.

        Without a store not for ever: others find that it is silent.
        """
        now = time.monotonic()
        if self._stop_requests >= 2 or (self._kill_after is not None and now > self._kill_after):
            return False
        is_silent = self._is_stopping and now - self._heart.last_success > UNHEALTHY_SECONDS
        return bool(self._leftovers) or ((self._lifeline.has_reports or self._registrar.has_work) and not is_silent)

    def _living(self) -> list[Child]:
        return [*filter(None, self._children), *self._retiring]

    def _hear(self, one: Child) -> None:
        try:
            message = one.control.recv(1)
        except ConnectionError:
            message = b""
        if message == child.READY:
            one.is_ready = True
        elif message == child.DIFFERS:
            self._refuse(parent_settings.refusal(child.differing(one.control)))
        elif message == RETIRE and one in self._children:
            self._children[self._children.index(one)] = None
            self._retiring.append(one)
            self._heart.set_draining(one.id)
        elif not message:
            # The end of the stream comes a moment before waitpid knows.
            with suppress(subprocess.TimeoutExpired):
                one.process.wait(0.2)

    # Starting

    def _spawn_missing(self) -> None:
        for place, one in enumerate(self._children):
            if one is None and time.monotonic() >= self._spawn_after[place] and not self._lifeline.has_reports:
                try:
                    self._children[place] = self._spawn(place)
                except OSError as error:  # no process, no memory, no file to be had at the moment
                    telemetry.emit("djqueue.supervisor.cannot_spawn", logging.ERROR, error=str(error))
                    self._spawn_after[place] = time.monotonic() + _SPAWN_RETRY_SECONDS

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
            "max_rss_mebibytes": self._spec.max_rss_mebibytes,
            "max_age_seconds": self._spec.max_age_seconds,
            "verbosity": self._spec.verbosity,
            "settings": self._settings,
            "control_fd": theirs.fileno(),
            "claims_fd": claims.fd,
        }
        title = f"djqueue worker {name}"
        try:
            process = subprocess.Popen(
                child.command(config, title),
                pass_fds=[theirs.fileno(), claims.fd],
                stdin=subprocess.DEVNULL,
                env=child.environment(worker),
            )
        except OSError:
            ours.close()
            claims.close()
            raise
        finally:
            theirs.close()
        one = Child(id=worker, name=name, process=process, control=ours, claims=claims)
        self._registrar.announce(self._info(one))
        return one

    def _advance(self, one: Child) -> None:
        """Bring a child to work: announced in the store first, beating, then told to go."""
        if not one.is_announced and self._registrar.is_announced(one.id):
            one.is_announced = True
            self._heart.add(one.id, one.claims)
        if one.is_ready and one.is_announced and not one.is_working and not self._is_stopping:
            self._failed_starts = 0
            one.is_working = True
            self._send(one, GO)
            telemetry.emit("djqueue.worker.start", worker=one.name, id=one.id, pid=one.process.pid)

    def _refuse(self, reason: str = "") -> None:
        """Leave, because no worker may or can run here."""
        if self._exit_code == EXIT_OK:
            self.refusal = reason
            self._exit_code = EXIT_CANNOT_START
            self._stop_requests += 1

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

    def _reap_orphans(self) -> None:
        """As PID 1 of a container: wait for what tasks left behind, or each of them stays a zombie."""
        if os.getpid() != 1:
            return
        ours = {one.process.pid for one in self._living()}
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in ours:
                    break  # the first in the line; the next round finds those behind it
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _reap(self) -> None:
        for place, one in enumerate(self._children):
            if one is not None and (code := one.process.poll()) is not None:
                self._children[place] = None
                if code == child.EXIT_DIFFERS and not one.is_ready:
                    self._hear(one)
                self._plan_successor(one, code, place)
                self._bury(one, code)
        for one in list(self._retiring):
            if (code := one.process.poll()) is not None:
                self._retiring.remove(one)
                self._plan_last_look(one)
                self._bury(one, code)

    def _plan_successor(self, one: Child, code: int, place: int) -> None:
        lived = time.monotonic() - one.started
        if end := one.claims.end:
            self._failures[place] = 0
            if self._spec.drain and end == END_DONE:
                self._spawn_after[place] = float("inf")
            return
        if not one.is_working and -code not in (signal.SIGKILL, signal.SIGTERM) and not self._heart.failures:
            # It ended by itself, and the store is there: it will not be different next time.
            self._failed_starts += 1
        self._failures[place] = 1 if lived > _STABLE_SECONDS else self._failures[place] + 1
        # The first replacement comes at once; a worker that dies again and again must not keep a core busy.
        pause = 0.0 if self._failures[place] == 1 else min(_LONGEST_RESPAWN_SECONDS, 2.0 ** (self._failures[place] - 2))
        self._spawn_after[place] = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311  jitter

    def _plan_last_look(self, one: Child) -> None:
        """Start one more worker of a drain: what a retired worker gave back may have come after its successor's last look."""
        if self._spec.drain and one.claims.end != END_DONE and math.inf in self._spawn_after:
            self._spawn_after[self._spawn_after.index(math.inf)] = 0.0

    def _bury(self, one: Child, code: int) -> None:
        self._leftovers.terminate(one.id)
        self._heart.remove(one.id)
        self._declared_dead.discard(one.id)
        lived = time.monotonic() - one.started
        if one.claims.end or (self._is_stopping and not one.is_working):
            telemetry.emit("djqueue.worker.stop", worker=one.name, lived_seconds=lived)
            self._registrar.forget(one.id)
        else:
            why = losses.reason(code, is_working=one.is_working)
            telemetry.emit("djqueue.worker.lost", logging.ERROR, worker=one.name, reason=why, lived_seconds=lived)
            if one.is_working:
                self._lifeline.report(losses.loss(one, why))
            else:
                self._registrar.forget(one.id)
        one.control.close()
        one.claims.close()

    def _end_overdue(self, one: Child) -> None:
        """Kill a worker that does not end a task by itself: a task that holds the interpreter stops every thread there."""
        if not one.overdue and (overdue := one.claims.overdue(OVERDUE_SECONDS)):
            one.overdue = overdue
            telemetry.emit("djqueue.worker.overdue", logging.ERROR, worker=one.name, jobs=list(overdue))
            one.process.kill()

    def _watch_store(self) -> None:
        """Say so when the store does not answer. After too long, end with an error, so that whoever watches us can act."""
        silent_seconds = time.monotonic() - self._heart.last_success
        if (silent_seconds > UNHEALTHY_SECONDS) != self._is_unhealthy:
            self._is_unhealthy = not self._is_unhealthy
            if self._is_unhealthy:
                telemetry.emit("djqueue.supervisor.unhealthy", logging.WARNING, seconds_without_store=silent_seconds)
            else:
                telemetry.emit("djqueue.supervisor.healthy")
        limit = self._options.give_up_after_seconds
        if self._heart.failures and not self._is_stopping and silent_seconds > limit:
            telemetry.emit("djqueue.supervisor.gave_up", logging.CRITICAL, seconds_without_store=limit)
            self._exit_code = EXIT_NO_STORE
            self._stop_requests += 1

    def _is_drained(self) -> bool:
        return self._spec.drain and all(after == float("inf") for after in self._spawn_after)

    def _on_declared_dead(self, worker: UUID) -> None:
        """The store says that a child of ours is dead for ever, or knows it no more; called by the heart's thread."""
        for one in self._living():
            if one.id == worker and worker not in self._declared_dead:
                self._declared_dead.add(worker)
                why = losses.DEAD if worker in self._heart.dead() else losses.FORGOTTEN
                telemetry.emit("djqueue.worker.declared_dead", logging.ERROR, worker=one.name, reason=why)
                # Its claims belong to others by now: nothing it does may count any more.
                one.process.kill()

    # Stopping

    def _wake(self) -> None:
        if self._signals is not None:
            self._signals.wake()

    def _on_stop(self) -> None:
        self._stop_requests += 1

    def _obey_stop_requests(self) -> None:
        if self._stop_requests and not self._is_stopping:
            self._is_stopping = True
            telemetry.emit("djqueue.supervisor.stopping", workers=len(self._living()))
            self._crew.stop_leading()
            self._kill_after = time.monotonic() + self._options.shutdown_timeout_seconds + GRACE_SECONDS
            for one in self._living():
                self._heart.set_draining(one.id)
                self._send(one, STOP)
                if not one.is_working:
                    one.process.kill()  # it has claimed nothing, and may be importing for long
        if self._stop_requests >= 2 and not self._is_aborting:
            self._is_aborting = True
            self._kill_after = min(self._kill_after or math.inf, time.monotonic() + ABORT_SECONDS)
            for one in self._living():
                self._send(one, ABORT)
        if self._kill_after is not None and time.monotonic() > self._kill_after:
            self._kill_all()

    def _kill_all(self) -> None:
        for one in self._living():
            one.process.kill()

    def _pause(self) -> float:
        pauses = [after - time.monotonic() for after in self._spawn_after if after != float("inf")]
        return max(0.05, min([TICK_SECONDS, *(pause for pause in pauses if pause > 0)]))

    @staticmethod
    def _send(one: Child, command: bytes) -> None:
        with suppress(OSError):  # it is gone; waitpid tells
            one.control.send(command)
