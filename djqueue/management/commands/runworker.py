"""``manage.py runworker``: run jobs until stopped."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from djqueue.jobs.names import invalid_queue_name, is_queue_name
from djqueue.management.arguments import add_backend, duration_seconds, whole_number
from djqueue.management.backends import store_of
from djqueue.management.serving import ServingCommand
from djqueue.management.terminal import notice
from djqueue.runtime import parent_settings
from djqueue.runtime.logs import configure
from djqueue.runtime.specs import LaneSpec, SupervisorSpec
from djqueue.runtime.supervisor import Supervisor
from djqueue.stores import Store

MAX_WORKER_NAME = 200
MAX_PROCESSES = 1000
"""A typing error must not fork until the machine stands still: each process takes tens of MB and three connections."""
MAX_SLOTS = 10_000
MAX_LIMIT = 10_000_000


class Command(ServingCommand):
    help = "Run jobs until stopped. Ctrl-C or SIGTERM lets running jobs finish first; a second one stops at once."
    # The checks of a project with a database that is down at the moment must not keep its workers from waiting for it.
    requires_system_checks = ["djqueue"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--queues",
            metavar="NAME[:N],...",
            help="Queues to serve. mail:20,default gives 'mail' 20 slots of its own; the other queues share --concurrency."
            " Default: all QUEUES of the backend, or 'default'.",
        )
        add_backend(parser)
        parser.add_argument(
            "--processes",
            type=whole_number(MAX_PROCESSES),
            default=1,
            metavar="N",
            help="Worker processes. Default: %(default)s.",
        )
        parser.add_argument(
            "--concurrency",
            type=whole_number(MAX_SLOTS),
            default=10,
            metavar="N",
            help="Jobs that one process runs at once, in threads or on its event loop. Default: %(default)s.",
        )
        parser.add_argument("--drain", action="store_true", help="Exit when no job is left that can run now.")
        parser.add_argument(
            "--no-cron",
            action="store_true",
            help="Do not enqueue jobs of the crontab; other workers or manage.py runcron do.",
        )
        parser.add_argument(
            "--max-jobs", type=whole_number(MAX_LIMIT), metavar="N", help="Replace a process after it has run N jobs."
        )
        parser.add_argument(
            "--max-rss",
            type=whole_number(MAX_LIMIT),
            metavar="MIB",
            help="Replace a process that uses more memory than this, in MiB.",
        )
        parser.add_argument(
            "--max-age",
            type=_age,
            metavar="DURATION",
            help="Replace a process that is older than this: 90 (seconds), 90m, '2 days'.",
        )
        parser.add_argument(
            "--worker-name",
            type=_worker_name,
            default="",
            metavar="NAME",
            help="Name in logs and the admin. Default: host name and process id.",
        )

    def handle(self, **options: Any) -> None:
        if parent_settings.module() is None:
            raise CommandError(
                "runworker starts processes of its own, which load the settings from a module, and settings.configure() was"
                " called here. Put the settings into a module and name it in DJANGO_SETTINGS_MODULE."
            )
        alias = options["backend"]
        store = store_of(alias)
        settings = store.settings
        lanes = _lanes(options["queues"], options["concurrency"], store)
        spec = SupervisorSpec(
            name=options["worker_name"] or f"{socket.gethostname()}-{os.getpid()}",
            backend=alias,
            lanes=lanes,
            processes=options["processes"],
            drain=options["drain"],
            # A drain runs the jobs that exist; jobs that the crontab adds must not prolong it.
            cron=not (options["no_cron"] or options["drain"]),
            max_jobs=options["max_jobs"],
            max_rss_mebibytes=options["max_rss"],
            max_age_seconds=options["max_age"],
            verbosity=options["verbosity"],
        )
        configure(options["verbosity"])
        if options["verbosity"]:
            notice(self, _banner(spec))
        # The connections that the checks opened; the supervisor opens its own.
        connections.close_all()
        supervisor = Supervisor(
            *(spec, store.engine, settings), outboxes=store.outboxes, ends_process=self.ends_process
        )
        code = supervisor.run()
        if supervisor.refusal:
            raise CommandError(supervisor.refusal, returncode=code)
        sys.exit(code)


def _lanes(text: str | None, concurrency: int, store: Store) -> tuple[LaneSpec, ...]:
    """Parse ``mail:20,default``: queues with a number get slots of their own, the others share the rest."""
    own: dict[str, int] = {}
    shared: list[str] = []
    if text is None:
        words = sorted(store.queues) or ["default"]
    elif not (words := [word.strip() for word in text.split(",") if word.strip()]):
        raise CommandError(f"Invalid --queues {text!r}: name at least one queue, or leave the option out to serve all.")
    for word in words:
        name, colon, number = word.rpartition(":") if word.rpartition(":")[2].isdigit() else (word, "", "")
        if not is_queue_name(name):
            raise CommandError(invalid_queue_name(name))
        if store.queues and name not in store.queues:
            raise CommandError(f"Queue {name!r} is not in QUEUES of the backend: {', '.join(sorted(store.queues))}.")
        if name in own or name in shared:
            raise CommandError(f"Queue {name!r} is named twice.")
        rules = store.settings.queues.get(name)
        slots = int(number) if colon else (rules.concurrency if rules else None)
        if slots is None:
            shared.append(name)
        elif 1 <= slots <= MAX_SLOTS:
            own[name] = slots
        else:
            raise CommandError(f"Invalid concurrency {slots} of queue {name!r}: use a number from 1 to {MAX_SLOTS}.")
    lanes = [LaneSpec(queues=(name,), slots=slots) for name, slots in own.items()]
    if shared:
        lanes.append(LaneSpec(queues=tuple(shared), slots=concurrency))
    return tuple(lanes)


def _banner(spec: SupervisorSpec) -> str:
    lines = [
        f"djqueue worker {spec.name}: backend {spec.backend!r}, {spec.processes} process{'' if spec.processes == 1 else 'es'}"
    ]
    for lane in spec.lanes:
        lines.append(
            f"  {', '.join(lane.queues)}: up to {lane.slots} job{'' if lane.slots == 1 else 's'} at once per process"
        )
    if spec.drain:
        lines.append("Stops when no job is left to run.")
    else:
        lines.append("Ctrl-C lets running jobs finish, then stops; a second one hands them back and stops at once.")
    return "\n".join(lines)


def _age(text: str) -> float:
    if (seconds := duration_seconds(text)) <= 0:
        raise argparse.ArgumentTypeError(f"Invalid duration {text!r:.80}: use one of more than 0.")
    return seconds


def _worker_name(text: str) -> str:
    if len(text) > MAX_WORKER_NAME or not text.isprintable():
        raise argparse.ArgumentTypeError(
            f"Invalid worker name {text!r:.80}: use at most {MAX_WORKER_NAME} printable characters, in UTF-8."
        )
    return text
