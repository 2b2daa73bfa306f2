"""One store: what it is, and its roles."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from djqueue.engines.protocol.controller import Controller
from djqueue.engines.protocol.cron import CronStore
from djqueue.engines.protocol.fetcher import Fetcher
from djqueue.engines.protocol.inserter import Inserter
from djqueue.engines.protocol.inspector import Inspector
from djqueue.engines.protocol.listener import Listener
from djqueue.engines.protocol.maintainer import Maintainer
from djqueue.engines.protocol.registrar import Registrar
from djqueue.jobs.records import Ack


class Engine(Inserter, Controller, Inspector, Protocol):
    """The verbs of the three roles that it has itself join the caller's transaction, if there is one.

    Those of an engine that is not transactional take effect at once, whatever becomes of the caller's transaction.
    """

    @property
    def is_transactional(self) -> bool:
        """Whether jobs are stored, and outcomes with ``ack_here``, in one transaction with what the application writes."""

    @property
    def store(self) -> str:
        """Name the store, without secrets. Engines with the same name have the same jobs, queues and crontab."""

    def transaction(self) -> AbstractContextManager[str]:
        """Open a transaction in which application writes and ``ack_here`` commit together; yield its database's alias."""

    def ack_here(self, ack: Ack) -> bool:
        """Store the outcome of a finished job in the caller's transaction; return whether the claim still holds."""

    @property
    def cron(self) -> CronStore:
        """The crontab on the application's connection: its verbs join the caller's transaction, if there is one."""

    def open_cron(self) -> CronStore:
        """Open the crontab for a scheduler: on a connection of its own."""

    def open_fetcher(self) -> Fetcher:
        """Open what the thread that fetches needs, or the one that stores outcomes."""

    def open_listener(self) -> Listener:
        """Open a listener for a thread that neither fetches nor stages."""

    def open_registrar(self) -> Registrar:
        """Open what a thread that registers workers or records their heartbeats needs."""

    def open_maintainer(self, *, waits: bool = False) -> Maintainer:
        """Open what one loop of maintenance needs.

        ``waits``: wait for locks of other transactions, for a command whose user can wait.
        """
