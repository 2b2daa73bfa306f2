"""One worker process: fetches, executes and acknowledges until its supervisor or its own limits end it."""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from djqueue import telemetry
from djqueue.conf import Options
from djqueue.engines.protocol import Engine
from djqueue.records import Ack
from djqueue.runtime.acker import Acker
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.executor import Executor
from djqueue.runtime.heart import Heart
from djqueue.runtime.lanes import Lane
from djqueue.runtime.observers import Observers
from djqueue.runtime.producer import Producer
from djqueue.service import Service
from djqueue.states import JobState

GO, STOP, ABORT = b"g", b"s", b"a"
"""What a supervisor sends: begin; finish what runs; give back what runs and leave."""
EXIT_DONE, EXIT_LOST, EXIT_BROKEN = 0, 75, 70
"""Nothing left behind; declared dead or aborted (leaves claims to rescue); a part died."""

_ABORT_FLUSH_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpec:
    """Queues that share slots."""

    queues: tuple[str, ...]
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What a worker process is told by its supervisor."""

    id: UUID
    name: str
    backend: str
    lanes: tuple[LaneSpec, ...]
    drain: bool = False
    max_jobs: int | None = None


class Worker:
    """Runs in the main thread of the process; ``control`` is the socket of the supervisor."""

    def __init__(
        self,
        spec: WorkerSpec,
        engine: Engine,
        options: Options,
        claims: ClaimBlock,
        control: socket.socket,
        *,
        backend_class: type,
    ) -> None:
        self._spec = spec
        self._control = control
        self._claims = claims
        self._shutdown_timeout = options.shutdown_timeout_seconds
        self._engine = engine
        self._is_finished = False
        self._is_orphan = False
        self._heart: Heart | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._acker = Acker(engine.open_worker(), claims, on_flushed=self._on_flushed)
        observers = Observers(spec.id, spec.backend, backend_class)
        self._executor = Executor(spec.id, self._acker, claims, observers, max_result_bytes=options.max_result_bytes)
        self._lanes = [
            Lane(
                lane.queues,
                lane.slots,
                start_thread=self._executor.start_thread,
                start_async=self._executor.start_async,
            )
            for lane in spec.lanes
        ]
        self._producer = Producer(
            spec.id,
            engine.open_worker(),
            engine.open_listener(),
            self._lanes,
            self._acker,
            claims,
            poll_interval_seconds=options.poll_interval_seconds,
            max_jobs=spec.max_jobs,
            drain=spec.drain,
            on_finished=self._on_finished,
        )

    def run(self) -> int:
        """Wait to be announced, then work until told otherwise; return the exit code."""
        if self._wait_for_command(None) != GO:
            return EXIT_DONE
        self._acker.start()
        self._producer.start()
        command = self._wait_for_command(None)
        telemetry.emit("djqueue.worker.draining", worker=self._spec.name, running=len(self._executor.running))
        self._producer.stop()
        # Fetching has ended when the producer's thread has: nothing is claimed after this line.
        deadline = time.monotonic() + self._shutdown_timeout
        while command != ABORT and not self._is_quiet() and (rest := deadline - time.monotonic()) > 0:
            command = self._wait_for_command(min(rest, 0.2)) or command
        return self._leave()

    def stop(self) -> None:
        """Finish what runs and end; for signal handlers."""
        self._is_finished = True
        self._interrupt()

    def _wait_for_command(self, timeout: float | None) -> bytes | None:
        """Wait for the supervisor, for the end of the work or for the death of a part."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            rest = 1.0 if deadline is None else deadline - time.monotonic()
            if rest <= 0:
                return None
            sources: list[socket.socket | int] = [self._wake_reader]
            if not self._is_orphan:
                sources.append(self._control)
            readable, _, _ = select.select(sources, [], [], min(rest, 1.0))
            if self._wake_reader in readable:
                os.read(self._wake_reader, 4096)
                if deadline is not None:
                    return None
            if self._control in readable:
                return self._control.recv(1) or self._become_orphan()
            if self._is_finished and deadline is None:
                return STOP
            self._check_parts()

    def _become_orphan(self) -> bytes:
        """The supervisor is gone and nobody beats for us any more: finish what runs, and do it ourselves till then."""
        telemetry.emit("djqueue.worker.orphaned", logging.WARNING, worker=self._spec.name)
        self._is_orphan = True
        self._heart = Heart(self._engine.open_worker(), on_dead=lambda _: os._exit(EXIT_LOST))
        self._heart.add(self._spec.id, self._claims)
        self._heart.set_draining(self._spec.id)
        self._heart.start()
        return STOP

    def _check_parts(self) -> None:
        """A part that died silently must not leave a worker that looks healthy."""
        parts: Sequence[Service] = (self._acker, self._producer)
        for part in parts:
            if not part.is_alive and not part.is_stopping:
                telemetry.emit("djqueue.worker.broken", logging.CRITICAL, worker=self._spec.name, part=part.name)
                os._exit(EXIT_BROKEN)

    def _is_quiet(self) -> bool:
        return not self._producer.is_alive and not self._claims.held

    def _leave(self) -> int:
        if self._is_quiet():
            code = EXIT_DONE
        else:
            self._hand_back_running()
            code = EXIT_DONE if self._is_quiet() else EXIT_LOST
        self._acker.stop()
        self._acker.join(2)
        for lane in self._lanes:
            lane.dismiss_threads()
        self._executor.close()
        if self._heart is not None:
            self._heart.stop()
            self._heart.join(2)
            if code == EXIT_DONE:
                with self._engine.open_worker() as engine:
                    engine.deregister([self._spec.id])
        return code

    def _hand_back_running(self) -> None:
        """Give back what still runs, with its attempt: an operator's stop is not the job's fault."""
        running = dict(self._executor.running)
        for place, execution in running.items():
            job = execution.job
            telemetry.emit("djqueue.job.interrupted", logging.WARNING, job=job.id, task=job.task, queue=job.queue)
            self._executor.disown(place)
            self._acker.put(Ack(job.id, job.claim, JobState.AVAILABLE, is_spent=False), place)
        deadline = time.monotonic() + _ABORT_FLUSH_SECONDS
        while not self._is_quiet() and time.monotonic() < deadline:
            self._wait_for_command(0.05)

    def _on_finished(self) -> None:
        if not self._is_finished:
            self.stop()

    def _on_flushed(self) -> None:
        if not self._claims.held:
            self._interrupt()
            self._producer.wake()

    def _interrupt(self) -> None:
        with suppress(BlockingIOError):  # full of interruptions already
            os.write(self._wake_writer, b"!")
