"""Entry point of a worker process.

The supervisor starts a new interpreter, never a fork: the child inherits no connection and no lock of its parent.
The child gets its options as JSON, and the claim block and the control socket as file descriptors. It sets Django up
and sends ``r`` when it is ready to work.
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

from djqueue.adapters.python import interpreter_flags
from djqueue.runtime import logs, parent_settings, process
from djqueue.runtime.leftovers import VARIABLE

BOOT = (
    "import sys, os, json; c = json.loads(sys.argv[1]); sys.path[:] = c['path'];"
    " sys.argv[:] = json.loads(os.environ.pop('DJQUEUE_ARGV'));"
    " from djqueue.runtime.child import main; main(c)"
)
READY, DIFFERS = b"r", b"d"
"""Messages of a worker process before it works: it is ready; or the names of settings that differ from the supervisor's."""
EXIT_DIFFERS = 78


def command(config: dict[str, Any], title: str) -> list[str]:
    """Return the command line of a worker process; ``title`` is shown by ``ps``."""
    config = {**config, "path": sys.path}
    return [sys.executable, *interpreter_flags(), "-c", BOOT, json.dumps(config), title]


def environment(worker: UUID) -> dict[str, str]:
    """Return the environment of a worker process."""
    return {
        **os.environ,
        VARIABLE: str(worker),
        "DJANGO_SETTINGS_MODULE": parent_settings.module() or "",
        # Settings may read the command line, and must see the same one. In ``ps`` it would look like the supervisor's.
        "DJQUEUE_ARGV": json.dumps(sys.argv),
    }


def main(config: dict[str, Any]) -> None:
    # Until the worker is ready it runs nothing, so SIGTERM ends it at once.
    process.hear(_die)
    logs.tolerate_closed_streams()
    control = socket.socket(fileno=config["control_fd"])
    if differences := parent_settings.differences(config["settings"], config["spec"]["backend"]):
        with suppress(OSError):
            control.sendall(DIFFERS + json.dumps(differences).encode())
        sys.exit(EXIT_DIFFERS)

    import django

    django.setup()

    from djqueue import stores
    from djqueue.adapters.asgiref import use_for_sync_code
    from djqueue.compat import task_backends
    from djqueue.runtime.claims import ClaimBlock
    from djqueue.runtime.helper_threads import HelperThreads
    from djqueue.runtime.specs import WorkerSpec
    from djqueue.runtime.worker import Worker
    from djqueue.tasks import registry

    use_for_sync_code(HelperThreads())
    spec = WorkerSpec.from_json(config["spec"])
    logs.configure(spec.verbosity)
    registry.autodiscover()
    store = stores.store(spec.backend)
    worker = Worker(
        UUID(config["id"]),
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
        sys.exit(0)  # the supervisor has ended already
    code = worker.run()
    process.end(code, is_aborted=worker.is_aborted)


def differing(control: socket.socket) -> list[str]:
    """Return the names of the settings that differ, which follow ``DIFFERS``."""
    names: list[str] = json.loads(control.recv(65536))
    return names


def _die() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
