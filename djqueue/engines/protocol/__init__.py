"""The contract between djqueue and a store: one protocol a role, one module each.

=============  ===========================================================  ================================
``Inserter``   stores new jobs                                              the application's connection
``Controller`` cancels, retries, discards, deletes, pauses, resumes         the application's connection
``Inspector``  reads jobs, queues, workers and health                       the application's connection
``Fetcher``    claims jobs and stores their outcomes                        a connection of its own
``Registrar``  registers workers and their heartbeats                       a connection of its own
``Maintainer`` stages, rescues, prunes, elects the leader                   a connection of its own
``CronStore``  the crontab                                                  either
``Listener``   waits for wake-ups                                           a connection of its own
=============  ===========================================================  ================================

An ``Engine`` is the first three and opens the others. The contract is written here, once: the docstrings of the engines
state only what differs. ``tests/engines/test_conformance.py`` is its specification.

Every verb that needs the time accepts ``now=None``: None is the store's own clock, and tests pass a time instead of
sleeping. Any number of processes may call any verb at the same time.

The verbs of a role with a connection of its own raise ``EngineUnavailable`` when the store cannot be reached, and
``EngineRefused`` when the store refuses a value; nothing has been done then.
"""

from djqueue.engines.protocol.controller import Controller
from djqueue.engines.protocol.cron import CronStore
from djqueue.engines.protocol.engine import Engine
from djqueue.engines.protocol.fetcher import Fetcher
from djqueue.engines.protocol.inserter import Inserter
from djqueue.engines.protocol.inspector import Inspector
from djqueue.engines.protocol.listener import SOON_SECONDS, STAGE, STAGE_LOOK_SECONDS, Listener
from djqueue.engines.protocol.maintainer import Maintainer
from djqueue.engines.protocol.registrar import Registrar

__all__ = [
    "SOON_SECONDS",
    "STAGE",
    "STAGE_LOOK_SECONDS",
    "Controller",
    "CronStore",
    "Engine",
    "Fetcher",
    "Inserter",
    "Inspector",
    "Listener",
    "Maintainer",
    "Registrar",
]
