"""One worker process: fetches, executes and acknowledges until its supervisor or its own limits end it."""

from __future__ import annotations

import logging
import math
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from djqueue import telemetry
from djqueue.conf import Options
from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineUnavailable, TaskTimeout
from djqueue.interrupts import InterruptPipe
from djqueue.jobs.silence import DOUBTFUL_SECONDS
from djqueue.jobs.states import JobState
from djqueue.runtime import process
from djqueue.runtime.acker import Acker
from djqueue.runtime.cancels import Canceller
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.execution import Execution
from djqueue.runtime.executor import Executor
from djqueue.runtime.heartbeat import Heartbeats
from djqueue.runtime.lanes import Lane
from djqueue.runtime.leftovers import Leftovers
from djqueue.runtime.lifecycle import Lifecycle
from djqueue.runtime.lingering import Lingering
from djqueue.runtime.observers import Observers
from djqueue.runtime.outcomes import interrupted
from djqueue.runtime.producer import Producer
from djqueue.runtime.specs import WorkerSpec
from djqueue.service import Service

GO, STOP, ABORT = b"g", b"s", b"a"
"""What a supervisor sends: begin; finish what runs; give back what runs and leave."""
RETIRE = b"x"
"""What a worker sends: it continues, but takes no more jobs; start its successor."""
_RECYCLE = b"r"
"""What a worker decides itself: leave when what runs has ended, however long that takes."""
EXIT_DONE, EXIT_LOST, EXIT_BROKEN = 0, 75, 70
"""Left in order; declared dead or aborted (leaves claims to rescue); a part died."""
END_DONE, END_REPLACE = 1, 2
"""What a worker that has left in order writes into its claim block: it has ended; or it has ended but the drain is not over."""

_FLUSH_SECONDS = 5.0
_ABORT_FLUSH_SECONDS = 2.0
_RETIRE_SECONDS = 30.0
"""How long a worker with a task that cannot be stopped waits for the others to end."""
_STUCK_RETRY_SECONDS = 1.0
"""A task that could not be stopped is not started again before its process has ended."""


class Worker:
    """Runs in the main thread of the process; ``control`` is the socket of the supervisor."""

    def __init__(
        self,
        id: UUID,
        spec: WorkerSpec,
        engine: Engine,
        options: Options,
        claims: ClaimBlock,
        control: socket.socket,
        *,
        backend_class: type,
    ) -> None:
        self._id = id
        self._spec = spec
        self._control = control
        self._claims = claims
        self._shutdown_timeout = options.shutdown_timeout_seconds
        self._engine = engine
        self._started = time.monotonic()
        self._is_finished = False
        self._is_drained = False
        self._is_retiring = self._is_recycling = False
        self._is_leaving = False
        self._ends_by_itself = spec.drain or spec.max_jobs is not None
        self._is_orphan = False
        self.is_aborted = False
        """Whether it had to leave at once."""
        self._heartbeats: Heartbeats | None = None
        self._pipe = InterruptPipe()
        self._acker = Acker(engine.open_fetcher(), claims, on_flushed=self._on_flushed)
        observers = Observers(id, spec.backend, backend_class)
        self._lifecycle = Lifecycle(id, engine, self._acker, claims, observers, on_stuck=self._on_stuck)
        self._executor = Executor(engine, self._lifecycle, observers, max_result_bytes=options.max_result_bytes)
        at_most_once = {name for name, rules in options.queues.items() if rules.delivery == "at_most_once"}
        self._lanes = [
            Lane(lane.queues, lane.slots, self._executor, may_prefetch=at_most_once.isdisjoint(lane.queues))
            for lane in spec.lanes
        ]
        self._lingering = Lingering(self._lanes, self._lifecycle.running)
        fetcher = engine.open_fetcher()
        self._producer = Producer(
            id,
            fetcher,
            fetcher.open_listener(),
            self._lanes,
            self._acker,
            claims,
            Canceller(fetcher, self._lifecycle.running),
            poll_interval_seconds=options.poll_interval_seconds,
            at_most_once=at_most_once,
            max_jobs=spec.max_jobs,
            drain=engine.open_maintainer(waits=True) if spec.drain else None,
            on_finished=self._on_finished,
        )

    def run(self) -> int:
        """Wait for the command to begin, then work until a command to stop; return the exit code."""
        if self._wait_for_command(None) != GO:
            self._claims.leave(END_REPLACE if self._spec.drain else END_DONE)
            return EXIT_DONE
        self._acker.start()
        self._producer.start()
        self._lifecycle.timekeeper.start()
        command = self._wait_for_command(None)
        telemetry.emit("djqueue.worker.draining", worker=self._spec.name, running=len(self._lifecycle.running))
        self._is_leaving = True
        self._producer.stop()
        if command == RETIRE:
            self._ask_for_successor()
        elif command == _RECYCLE:
            command = self._wait_for_jobs()
        # Fetching ends with the producer's thread.
        deadline = time.monotonic() + (_RETIRE_SECONDS if command == RETIRE else self._shutdown_timeout)
        while command != ABORT and not self._is_quiet() and (rest := deadline - time.monotonic()) > 0:
            # No interrupt tells that a slot is free, which is most often an instant after its outcome was stored.
            pause = 0.2 if self._claims.held else 0.01
            command = self._wait_for_command(min(rest, pause)) or command
        self.is_aborted = command == ABORT
        return self._leave()

    def _wait_for_jobs(self) -> bytes:
        """Wait for what runs until nothing is left or a command arrives; return the command to follow.

        A job must not start over and over because it takes longer than a process may live. After the time that a stop
        would give it, another process takes over the queues.
        """
        successor_at = time.monotonic() + self._shutdown_timeout
        while not self._is_quiet() and not self._is_finished:
            if command := self._wait_for_command(0.2):
                return command
            if time.monotonic() > successor_at:
                self._ask_for_successor()
                successor_at = math.inf
        return STOP

    def _ask_for_successor(self) -> None:
        with suppress(OSError):  # without a supervisor there is no successor
            self._control.send(RETIRE)

    def stop(self) -> None:
        """Finish what runs and end; for signal handlers."""
        self._is_finished = True
        self._pipe.interrupt()

    def _wait_for_command(self, timeout: float | None) -> bytes | None:
        """Wait for the supervisor, for the end of the work or for the death of a part."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            rest = 1.0 if deadline is None else deadline - time.monotonic()
            if rest <= 0:
                return None
            sources: list[socket.socket | int] = [self._pipe.reader]
            if not self._is_orphan:
                sources.append(self._control)
            readable, _, _ = select.select(sources, [], [], min(rest, 1.0))
            if self._pipe.reader in readable:
                self._pipe.clear()
                if deadline is not None:
                    return None
            if self._control in readable:
                return self._receive() or self._become_orphan()
            if deadline is None:
                if self._is_retiring:
                    return RETIRE
                self._check_limits()
                if self._is_finished:
                    return STOP
                if self._is_recycling:
                    return _RECYCLE
            self._check_parts()
            self._lingering.look()
            self._claims.record_pulse()

    def _receive(self) -> bytes:
        """Return the command that the supervisor has sent; nothing if the supervisor is gone."""
        try:
            return self._control.recv(1)
        except ConnectionError:  # it died before it had read what we sent
            return b""

    def _become_orphan(self) -> bytes:
        """Continue without a supervisor: finish what runs, and send the heartbeats from here until then."""
        telemetry.emit("djqueue.worker.orphaned", logging.WARNING, worker=self._spec.name)
        self._is_orphan = True
        self._heartbeats = Heartbeats(self._engine.open_registrar(), on_dead=lambda _: os._exit(EXIT_LOST))
        self._heartbeats.add(self._id, self._claims)
        self._heartbeats.set_draining(self._id)
        self._heartbeats.start()
        return STOP

    def _check_limits(self) -> None:
        """Recycle the process if it is too large or too old; the supervisor starts another one."""
        limit, age = self._spec.max_rss_mebibytes, self._spec.max_age_seconds
        if limit is not None and (rss := _rss_mebibytes()) > limit:
            self._recycle(f"it uses {rss:.0f} MiB of memory")
        elif age is not None and time.monotonic() - self._started > age:
            self._recycle(f"it is older than {age:g} seconds")
        elif self._lingering.stops_a_lane and not self._acker.failures:
            # Not while an outcome cannot be stored: its job would run again.
            self._report_recycling("code that is called after its tasks does not return")
            self._is_retiring = True

    def _recycle(self, reason: str) -> None:
        self._report_recycling(reason)
        self._is_recycling = True

    def _report_recycling(self, reason: str) -> None:
        telemetry.emit("djqueue.worker.recycling", worker=self._spec.name, reason=reason)

    def _check_parts(self) -> None:
        """End the process if a part of it has died: the worker must not look healthy without it."""
        parts: Sequence[Service] = (self._acker, self._producer, self._lifecycle.timekeeper, self._executor.event_loop)
        for part in parts:
            if part.has_died:
                telemetry.emit("djqueue.worker.broken", logging.CRITICAL, worker=self._spec.name, part=part.name)
                process.end(EXIT_BROKEN, is_aborted=True)

    def _is_quiet(self) -> bool:
        """Return whether everything is done except stuck tasks, which will not end."""
        stuck = sum(one.is_stuck for one in list(self._lifecycle.running.values()))
        # An outcome is stored before the receivers of task_finished have returned; the slot is free afterwards.
        busy = sum(lane.running for lane in self._lanes)
        return not self._producer.is_alive and max(self._claims.held, busy - len(self._lingering)) <= stuck

    def _leave(self) -> int:
        self._give_up_running()
        # A fetch without an answer may still claim something.
        is_lost = self._claims.held or self._producer.is_in_doubt or self._producer.is_alive
        self._acker.stop()
        self._acker.join(1)
        for lane in self._lanes:
            lane.dismiss_threads()
        self._executor.close()
        if self._heartbeats is not None:
            self._heartbeats.stop()
            self._heartbeats.join(2)
            Leftovers().terminate(self._id)
            if not is_lost and time.monotonic() - self._heartbeats.last_success < DOUBTFUL_SECONDS:
                # Without an answer the row stays and becomes silent, and its rescue will find nothing.
                with suppress(EngineUnavailable), self._engine.open_registrar() as registrar:
                    registrar.deregister([self._id])
        if is_lost:
            return EXIT_LOST
        is_drained = self._is_drained and not self._producer.has_given_back
        self._claims.leave(END_DONE if is_drained or not self._spec.drain else END_REPLACE)
        return EXIT_DONE

    def _give_up_running(self) -> None:
        """Give what still runs an outcome: what its timeout could not end has failed, the rest is handed back.

        A stop of the worker, or a stuck task beside it, is not the job's fault, so it keeps its attempt.
        """
        for execution in list(self._lifecycle.running.values()):
            job = execution.job
            if execution.is_stuck:
                ack, _ = self._lifecycle.failure(execution, TaskTimeout("The task could not be stopped."))
                if not ack.state.is_final:
                    ack = ack._replace(state=JobState.RETRYABLE, delay=max(ack.delay, _STUCK_RETRY_SECONDS))
            else:
                ack = interrupted(job, self._id, started=execution.started)
            # First take the outcome over, then ask the task to stop: what it does now is ignored.
            if not self._lifecycle.take_over(execution):
                continue
            if not execution.is_stuck:
                telemetry.emit("djqueue.job.interrupted", logging.WARNING, job=job.id, task=job.task, queue=job.queue)
            execution.stop("The worker process is ending.")
            self._acker.put(ack, execution.claim_slot)
        deadline = time.monotonic() + (_ABORT_FLUSH_SECONDS if self.is_aborted else _FLUSH_SECONDS)
        while self._claims.held and time.monotonic() < deadline:
            if self._wait_for_command(0.05) == ABORT:
                self.is_aborted = True
                deadline = min(deadline, time.monotonic() + _ABORT_FLUSH_SECONDS)

    def _on_stuck(self, execution: Execution) -> None:
        """Retire because a task still runs after its timeout; called by the timekeeper's thread."""
        job, timeout = execution.job, execution.task.timeout
        telemetry.emit("djqueue.job.stuck", logging.ERROR, job=job.id, task=job.task, timeout=timeout)
        self._is_retiring = True
        self._pipe.interrupt()

    def _on_finished(self, *, is_drained: bool) -> None:
        if not self._is_finished:
            self._is_drained = is_drained
            self.stop()

    def _on_flushed(self) -> None:
        # Only an ending worker waits for the last outcome. With few jobs, each one is the last for a moment.
        if not self._claims.held and (self._is_leaving or self._ends_by_itself):
            self._pipe.interrupt()
            self._producer.wake()


def _rss_mebibytes() -> float:
    """Return the memory that this process uses; without /proc, the most that it has ever used."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
