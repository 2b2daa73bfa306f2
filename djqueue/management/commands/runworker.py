"""``manage.py runworker``: run jobs until stopped."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from djqueue import conf
from djqueue.management.backends import backend_of, outboxes_of
from djqueue.management.notices import notice
from djqueue.runtime import parent_settings
from djqueue.runtime.logs import configure
from djqueue.runtime.signals import leaving_at_once
from djqueue.runtime.supervisor import Supervisor, SupervisorSpec
from djqueue.runtime.worker import LaneSpec


class Command(BaseCommand):
    help = "Run jobs until stopped. Ctrl-C or SIGTERM ends it when what runs has ended; a second one at once."
    # The checks of a project with a database that is down at the moment must not keep its workers from waiting for it.
    requires_system_checks = ["djqueue"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--queues",
            default="",
            metavar="NAME[:N],…",
            help="Which queues to serve, and how many jobs of one run at once in slots of its own: mail:20,default."
            " Without it: all QUEUES of the backend, or 'default'.",
        )
        parser.add_argument("--backend", default="default", metavar="ALIAS", help="Which entry of TASKS to serve.")
        parser.add_argument(
            "--processes",
            type=_positive,
            default=1,
            metavar="N",
            help="Worker processes. Default: %(default)s.",
        )
        parser.add_argument(
            "--concurrency",
            type=_positive,
            default=10,
            metavar="N",
            help="How many jobs one process runs at once, in threads or on its event loop. Default: %(default)s.",
        )
        parser.add_argument("--drain", action="store_true", help="Exit as soon as nothing is left that could run now.")
        parser.add_argument(
            "--no-cron", action="store_true", help="Leave the crontab to other workers or to manage.py runcron."
        )
        parser.add_argument(
            "--max-jobs", type=_positive, metavar="N", help="Replace a process after it has run N jobs."
        )
        parser.add_argument(
            "--max-rss",
            type=_positive,
            metavar="MIB",
            help="Replace a process that takes more than so many MiB of memory.",
        )
        parser.add_argument(
            "--max-age", type=_positive, metavar="SECONDS", help="Replace a process after it has lived so long."
        )
        parser.add_argument(
            "--worker-name",
            default="",
            metavar="NAME",
            help="How it shows in logs and the admin. Default: the host's name.",
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Hear signals before the checks ask a database that may be silent."""
        if threading.current_thread() is not threading.main_thread():
            raise CommandError("runworker has to run in the main thread of its process, where signals are handled.")
        with leaving_at_once():
            return super().execute(*args, **options)

    def handle(self, **options: Any) -> None:
        if parent_settings.module() is None:
            raise CommandError(
                "runworker starts processes of its own, which load the settings from a module, and settings.configure() was"
                " called here. Put the settings into a module and name it in DJANGO_SETTINGS_MODULE."
            )
        alias = options["backend"]
        backend = backend_of(alias)
        settings = backend.settings
        lanes = _lanes(options["queues"], options["concurrency"], backend)
        spec = SupervisorSpec(
            name=options["worker_name"] or f"{socket.gethostname()}-{os.getpid()}",
            backend=alias,
            lanes=lanes,
            processes=options["processes"],
            drain=options["drain"],
            # A drain runs what is there; when it is over must not hang on what the crontab adds.
            cron=not (options["no_cron"] or options["drain"]),
            max_jobs=options["max_jobs"],
            max_rss_mebibytes=options["max_rss"],
            max_age_seconds=options["max_age"],
            verbosity=options["verbosity"],
        )
        configure(options["verbosity"])
        if options["verbosity"]:
            notice(self, _banner(spec, backend))
        # What the checks asked the database stays theirs; the supervisor has connections of its own.
        connections.close_all()
        supervisor = Supervisor(spec, backend.engine, settings, outboxes=outboxes_of(backend))
        code = supervisor.run()
        if supervisor.refusal:
            raise CommandError(supervisor.refusal, returncode=code)
        sys.exit(code)


def _lanes(text: str, concurrency: int, backend: Any) -> tuple[LaneSpec, ...]:
    """Parse ``mail:20,default``: queues with a number get slots of their own, the others share the rest."""
    own: dict[str, int] = {}
    shared: list[str] = []
    words = [word.strip() for word in text.split(",") if word.strip()] or sorted(backend.queues) or ["default"]
    for word in words:
        name, colon, number = word.rpartition(":") if word.rpartition(":")[2].isdigit() else (word, "", "")
        if not conf.QUEUE_NAME.fullmatch(name):
            raise CommandError(f"{name!r} is no queue name: 1 to 128 letters, digits, '_', '.', ':' or '-'.")
        if backend.queues and name not in backend.queues:
            raise CommandError(f"Queue {name!r} is not in QUEUES of the backend: {', '.join(sorted(backend.queues))}.")
        if name in own or name in shared:
            raise CommandError(f"Queue {name!r} is named twice.")
        rules = backend.settings.queues.get(name)
        slots = int(number) if colon else (rules.concurrency if rules else None)
        if slots is None:
            shared.append(name)
        elif 1 <= slots <= 10_000:
            own[name] = slots
        else:
            raise CommandError(f"The concurrency of queue {name!r} is a number from 1 to 10000, not {slots}.")
    lanes = [LaneSpec(queues=(name,), slots=slots) for name, slots in own.items()]
    if shared:
        lanes.append(LaneSpec(queues=tuple(shared), slots=concurrency))
    return tuple(lanes)


def _banner(spec: SupervisorSpec, backend: Any) -> str:
    lines = [f"djqueue worker {spec.name}: backend {spec.backend!r}, {spec.processes} process(es)"]
    for lane in spec.lanes:
        lines.append(f"  {', '.join(lane.queues)}: {lane.slots} at once in each process")
    if spec.drain:
        lines.append("  until nothing is left to run.")
    else:
        lines.append("Ctrl-C stops it when what runs has ended; a second one gives it back.")
    return "\n".join(lines)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 10_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 up.")
    return number
