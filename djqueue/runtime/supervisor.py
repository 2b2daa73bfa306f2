"""Start worker processes, send their heartbeats, and replace those that end."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from djqueue import telemetry
from djqueue.conf import Options
from djqueue.engines.protocol import Engine
from djqueue.jobs.records import WorkerInfo
from djqueue.jobs.silence import DOUBTFUL_SECONDS
from djqueue.maintenance.leader_services import LeaderServices
from djqueue.outbox.rows import Outbox
from djqueue.runtime import child, losses, parent_settings
from djqueue.runtime.children import Child, Successions, spawn
from djqueue.runtime.heartbeat import Heartbeats
from djqueue.runtime.leftovers import Leftovers
from djqueue.runtime.registrar import Registrar
from djqueue.runtime.signals import STOP_SIGNALS, SignalPipe
from djqueue.runtime.specs import SupervisorSpec
from djqueue.runtime.worker import ABORT, END_DONE, GO, RETIRE, STOP
from djqueue.service import Service

TICK_SECONDS = 1.0
GRACE_SECONDS = 15.0
"""How much longer than its shutdown timeout a child may take to leave before it is killed."""
ABORT_SECONDS = 8.0
"""The same, after a second signal."""
_SAME_REQUEST_SECONDS = 0.25
"""Stop signals this close together are one request."""
_FAREWELL_SECONDS = 3.0
_HURRY_SECONDS = 0.5
_MOST_FAILED_STARTS = 3

HUNG_SECONDS = 30.0
"""How long the main thread of a worker may not run before it is reported."""
OVERDUE_SECONDS = 40.0
"""This long after a task's timeout, its worker could not end it: the supervisor kills the process."""

EXIT_OK, EXIT_CANNOT_START, EXIT_NO_STORE = 0, 1, 2


class Supervisor:
    """Runs in the main thread; executes no code of the application beyond its settings, and, for the crontab, the import of
    its ``tasks`` modules (why: see ``maintenance/scheduler.py``)."""

    def __init__(
        self,
        spec: SupervisorSpec,
        engine: Engine,
        options: Options,
        *,
        outboxes: Sequence[Outbox] = (),
        ends_process: bool = False,
    ) -> None:
        """``outboxes``: the tables in which jobs wait until they are sent to this store. ``ends_process``: the process ends
        after ``run``, so that stop signals are ignored from then on."""
        self._spec = spec
        self._ends_process = ends_process
        self._engine = engine
        self._options = options
        self._hostname = socket.gethostname()
        self._settings = parent_settings.digests(spec.backend)
        self._children: list[Child | None] = [None] * spec.processes
        self._successions = Successions(spec.processes)
        self._retiring: list[Child] = []
        """Workers with a task that cannot be stopped; each has a successor already."""
        self._leftovers = Leftovers()
        self.refusal = ""
        """Why the worker processes refuse to start, as a sentence."""
        self._exit_code = EXIT_OK
        self._is_unhealthy = False
        self._is_stopping = self._is_aborting = False
        self._stop_requests = 0
        self._stop_asked_at = -math.inf
        self._kill_after: float | None = None
        self._signals: SignalPipe | None = None
        self._registrar = Registrar(engine, on_change=self._wake)
        self._heartbeats = Heartbeats(engine.open_registrar(), on_dead=self._on_declared_dead)
        self._leader_services = LeaderServices(
            engine,
            options,
            silent=self._heartbeats.silent,
            dead=self._heartbeats.dead,
            has_cron=spec.cron,
            outboxes=outboxes,
        )
        self._lifeline = self._leader_services.lifeline
        self._declared_dead: set[UUID] = set()

    def run(self) -> int:
        """Supervise until a signal or the end of the work; return the exit code."""
        handlers = dict.fromkeys(STOP_SIGNALS, self._on_stop) | {signal.SIGCHLD: None}
        with SignalPipe(handlers, ends_process=self._ends_process) as self._signals:
            services: list[Service] = [self._registrar, self._heartbeats, *self._leader_services.services]
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
        """Wait a moment for the last statements of the services: a store that does not answer must not hold up the end."""
        began = time.monotonic()
        while any(service.is_alive for service in services):
            if time.monotonic() - began > (_HURRY_SECONDS if self._stop_requests >= 2 else _FAREWELL_SECONDS):
                break
            time.sleep(0.01)  # a second signal shortens the wait

    def _loop(self, signals: SignalPipe) -> int:
        while True:
            self._reap_orphans()
            self._reap()
            self._leftovers.kill()
            if self._successions.failed_starts >= _MOST_FAILED_STARTS:
                telemetry.emit(
                    "djqueue.supervisor.failed", logging.CRITICAL, reason="worker processes end before they are ready"
                )
                return EXIT_CANNOT_START
            if not self._is_stopping:
                self._spawn_missing()
            living = self._living()
            if not living and (self._is_stopping or self._is_drained()) and not self._must_wait():
                return self._exit_code
            for one in living:
                self._advance(one)
                self._watch_pulse(one)
                self._end_overdue(one)
            self._watch_store()
            if self._registrar.is_refused:
                self._refuse()
            self._apply_stop_requests()
            self._leader_services.watch()
            ready = signals.wait([one.control for one in living], self._pause())
            for one in living:
                if one.control in ready:
                    self._hear(one)

    def _must_wait(self) -> bool:
        """Return whether a worker that has ended has left something to do: jobs to rescue, its row, its processes.

        This does not last forever without a store: other workers will find that it is silent.
        """
        now = time.monotonic()
        if self._stop_requests >= 2 or (self._kill_after is not None and now > self._kill_after):
            return False
        is_silent = self._is_stopping and now - self._heartbeats.last_success > DOUBTFUL_SECONDS
        return bool(self._leftovers) or ((self._lifeline.has_reports or self._registrar.has_work) and not is_silent)

    def _living(self) -> list[Child]:
        return [*filter(None, self._children), *self._retiring]

    def _hear(self, one: Child) -> None:
        message = one.receive()
        if message == child.READY:
            one.is_ready = True
        elif message == child.DIFFERS:
            self._refuse(parent_settings.refusal(child.differing(one.control)))
        elif message == RETIRE and one in self._children:
            self._children[self._children.index(one)] = None
            self._retiring.append(one)
            self._heartbeats.set_draining(one.id)
        elif not message:
            # The end of the stream comes a moment before waitpid knows.
            with suppress(subprocess.TimeoutExpired):
                one.process.wait(0.2)

    # Starting

    def _spawn_missing(self) -> None:
        for position, one in enumerate(self._children):
            if one is None and self._successions.is_due(position) and not self._lifeline.has_reports:
                try:
                    started = spawn(self._spec, f"{self._spec.name}.{position + 1}", self._settings)
                except OSError as error:
                    telemetry.emit("djqueue.supervisor.cannot_spawn", logging.ERROR, error=str(error))
                    self._successions.retry_soon(position)
                else:
                    self._children[position] = started
                    self._registrar.register(
                        WorkerInfo(
                            id=started.id,
                            name=started.name,
                            hostname=self._hostname,
                            pid=started.process.pid,
                            queues=self._spec.queues,
                            concurrency=self._spec.concurrency,
                        )
                    )

    def _advance(self, one: Child) -> None:
        """Bring a child to work: its row in the store first, then heartbeats, then the command to begin."""
        if not one.is_announced and self._registrar.is_registered(one.id):
            one.is_announced = True
            self._heartbeats.add(one.id, one.claims)
        if one.is_ready and one.is_announced and not one.is_working and not self._is_stopping:
            self._successions.failed_starts = 0
            one.is_working = True
            one.claims.record_pulse()
            one.send(GO)
            telemetry.emit("djqueue.worker.start", worker=one.name, id=one.id, pid=one.process.pid)

    def _refuse(self, reason: str = "") -> None:
        """Stop because no worker may or can run here."""
        if self._exit_code == EXIT_OK:
            self.refusal = reason
            self._exit_code = EXIT_CANNOT_START
            self._stop_requests += 1

    # Ending

    def _reap_orphans(self) -> None:
        """As PID 1 of a container, wait for processes that tasks left behind, or each of them stays a zombie."""
        if os.getpid() != 1:
            return
        ours = {one.process.pid for one in self._living()}
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in ours:
                    break  # the first in the line; the next round finds those behind it
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _reap(self) -> None:
        for position, one in enumerate(self._children):
            if one is not None and (code := one.process.poll()) is not None:
                self._children[position] = None
                if code == child.EXIT_DIFFERS and not one.is_ready:
                    self._hear(one)
                self._plan_successor(one, code, position)
                self._bury(one, code)
        for one in list(self._retiring):
            if (code := one.process.poll()) is not None:
                self._retiring.remove(one)
                self._plan_last_look(one)
                self._bury(one, code)

    def _plan_successor(self, one: Child, code: int, position: int) -> None:
        if not (end := one.claims.end):
            self._successions.note_loss(position, one, code, is_store_reachable=not self._heartbeats.failures)
            return
        self._successions.note_end_in_order(position)
        if self._spec.drain and end == END_DONE:
            self._successions.finish(position)

    def _plan_last_look(self, one: Child) -> None:
        """Start one more worker of a drain: a retired worker may have handed back jobs after its successor's last fetch."""
        if self._spec.drain and one.claims.end != END_DONE:
            self._successions.resume_one()

    def _bury(self, one: Child, code: int) -> None:
        self._leftovers.terminate(one.id)
        self._heartbeats.remove(one.id)
        self._declared_dead.discard(one.id)
        lived = one.lived_seconds
        if one.claims.end or (self._is_stopping and not one.is_working):
            telemetry.emit("djqueue.worker.stop", worker=one.name, lived_seconds=lived)
            self._registrar.deregister(one.id)
        else:
            why = losses.reason(code, is_working=one.is_working)
            telemetry.emit("djqueue.worker.lost", logging.ERROR, worker=one.name, reason=why, lived_seconds=lived)
            if one.is_working:
                self._lifeline.report(losses.loss(one, why))
            else:
                self._registrar.deregister(one.id)
        one.close()

    def _watch_pulse(self, one: Child) -> None:
        """Report a worker that stands still although this process sends heartbeats for it.

        It is not killed: its task may be at work in one long call that holds the interpreter, and has set no timeout.
        """
        seconds = one.claims.seconds_since_pulse()
        if one.is_working and (seconds > HUNG_SECONDS) != one.is_hung:
            one.is_hung = not one.is_hung
            if one.is_hung:
                jobs, pid = list(one.claims.begun()), one.process.pid
                telemetry.emit(
                    "djqueue.worker.hung", logging.ERROR, worker=one.name, pid=pid, seconds=seconds, jobs=jobs
                )
            else:
                telemetry.emit("djqueue.worker.moves", worker=one.name)

    def _end_overdue(self, one: Child) -> None:
        """Kill a worker that could not end a task: a task that holds the interpreter stops every thread of its process."""
        if not one.overdue and (overdue := one.claims.overdue(OVERDUE_SECONDS)):
            one.overdue = overdue
            telemetry.emit("djqueue.worker.overdue", logging.ERROR, worker=one.name, jobs=list(overdue))
            one.process.kill()

    def _watch_store(self) -> None:
        """Report a store that does not answer. After too long, end with an error, so that a service manager can act."""
        silent_seconds = time.monotonic() - self._heartbeats.last_success
        if (silent_seconds > DOUBTFUL_SECONDS) != self._is_unhealthy:
            self._is_unhealthy = not self._is_unhealthy
            if self._is_unhealthy:
                telemetry.emit("djqueue.supervisor.unhealthy", logging.WARNING, seconds_without_store=silent_seconds)
            else:
                telemetry.emit("djqueue.supervisor.healthy")
        limit = self._options.give_up_after_seconds
        if self._heartbeats.failures and not self._is_stopping and silent_seconds > limit:
            telemetry.emit("djqueue.supervisor.gave_up", logging.CRITICAL, seconds_without_store=limit)
            self._exit_code = EXIT_NO_STORE
            self._stop_requests += 1

    def _is_drained(self) -> bool:
        return self._spec.drain and self._successions.all_finished

    def _on_declared_dead(self, worker: UUID) -> None:
        """Kill a child that the store has marked as dead or has no row for; called by the thread of the heartbeats."""
        for one in self._living():
            if one.id == worker and worker not in self._declared_dead:
                self._declared_dead.add(worker)
                why = losses.refusal(
                    is_marked=worker in self._heartbeats.dead(), silent_seconds=one.claims.seconds_since_beat()
                )
                telemetry.emit("djqueue.worker.declared_dead", logging.ERROR, worker=one.name, reason=why)
                # Other workers own its claims by now: nothing that it does may have an effect.
                one.process.kill()

    # Stopping

    def _wake(self) -> None:
        if self._signals is not None:
            self._signals.wake()

    def _on_stop(self) -> None:
        # A wrapper that passes on what the terminal or the process group has already sent makes one request two signals.
        now = time.monotonic()
        if now - self._stop_asked_at > _SAME_REQUEST_SECONDS:
            self._stop_asked_at = now
            self._stop_requests += 1

    def _apply_stop_requests(self) -> None:
        if self._stop_requests and not self._is_stopping:
            self._is_stopping = True
            telemetry.emit("djqueue.supervisor.stopping", workers=len(self._living()))
            self._leader_services.stop_leading()
            self._kill_after = time.monotonic() + self._options.shutdown_timeout_seconds + GRACE_SECONDS
            for one in self._living():
                self._heartbeats.set_draining(one.id)
                one.send(STOP)
                if not one.is_working:
                    one.process.kill()  # it has claimed nothing, and may be importing for long
        if self._stop_requests >= 2 and not self._is_aborting:
            self._is_aborting = True
            self._kill_after = min(self._kill_after or math.inf, time.monotonic() + ABORT_SECONDS)
            for one in self._living():
                one.send(ABORT)
        if self._kill_after is not None and time.monotonic() > self._kill_after:
            self._kill_all()

    def _kill_all(self) -> None:
        for one in self._living():
            one.process.kill()

    def _pause(self) -> float:
        return max(0.05, min([TICK_SECONDS, *self._successions.seconds_until_next()]))
