"""Entry point of a worker process.

The supervisor starts a new interpreter, never a fork: a connection or a lock that the parent holds is not inherited.
The child is told who it is as JSON, gets the claim block and the control socket by file descriptor, sets Django up
and says ``r`` when it can work.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any
from uuid import UUID

from djqueue.runtime import logs, parent_settings, process
from djqueue.runtime.leftovers import VARIABLE

BOOT = (
    "import sys, os, json; c = json.loads(sys.argv[1]); sys.path[:] = c['path'];"
    " sys.argv[:] = json.loads(os.environ.pop('DJQUEUE_ARGV'));"
    " from djqueue.runtime.child import main; main(c)"
)
READY, DIFFERS = b"r", b"d"
"""What a worker process says before it works: it can; or which of its settings are not those of the supervisor."""
EXIT_DIFFERS = 78


def command(config: dict[str, Any], title: str) -> list[str]:
    """Return the command line of a worker process; ``title`` is for whoever reads ``ps``."""
    from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]

    config = {**config, "path": sys.path}
    return [sys.executable, *_args_from_interpreter_flags(), "-c", BOOT, json.dumps(config), title]


def environment(worker: UUID) -> dict[str, str]:
    """Return the environment of a worker process."""
    return {
        **os.environ,
        VARIABLE: str(worker),
        "DJANGO_SETTINGS_MODULE": parent_settings.module() or "",
        # Settings may look at the command line, and should see the same. In ``ps`` it would be taken for the supervisor's.
        "DJQUEUE_ARGV": json.dumps(sys.argv),
    }


def main(config: dict[str, Any]) -> None:
    # Nothing is begun before the worker is ready: until then SIGTERM ends it there and then.
    process.hear(_die)
    logs.tolerate_closed_streams()
    control = socket.socket(fileno=config["control_fd"])
    if differences := parent_settings.differences(config["settings"], config["backend"]):
        with suppress(OSError):
            control.sendall(DIFFERS + json.dumps(differences).encode())
        sys.exit(EXIT_DIFFERS)

    import django

    django.setup()

    from asgiref.sync import SyncToAsync

    from djqueue import stores
    from djqueue.compat import task_backends
    from djqueue.runtime.claims import ClaimBlock
    from djqueue.runtime.django_connections import HelperThreads
    from djqueue.runtime.worker import LaneSpec, Worker, WorkerSpec
    from djqueue.tasks import registry

    SyncToAsync.single_thread_executor = HelperThreads()  # type: ignore[assignment]  # an executor will do
    logs.configure(config["verbosity"])
    registry.autodiscover()
    spec = WorkerSpec(
        id=UUID(config["id"]),
        name=config["name"],
        backend=config["backend"],
        lanes=tuple(LaneSpec(queues=tuple(queues), slots=slots) for queues, slots in config["lanes"]),
        drain=config["drain"],
        max_jobs=config["max_jobs"],
        max_rss_mebibytes=config["max_rss_mebibytes"],
        max_age_seconds=config["max_age_seconds"],
    )
    store = stores.store(spec.backend)
    worker = Worker(
        spec,
        store.engine,
        store.settings,
        ClaimBlock(config["claims_fd"]),
        control,
        backend_class=type(task_backends[spec.backend]),
    )
    process.hear(worker.stop)
    try:
        control.sendall(READY)
    except OSError:
        control.close()
        sys.exit(0)  # the supervisor is gone already
    code = worker.run()
    process.end(code, is_aborted=worker.is_aborted)


def differing(control: socket.socket) -> list[str]:
    """Return the names of the settings that differ, which follow what ``DIFFERS`` announced."""
    names: list[str] = json.loads(control.recv(65536))
    return names


def _die() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
