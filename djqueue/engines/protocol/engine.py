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
    """The verbs of its own three roles join the caller's transaction, if there is one.

    In an engine that is not transactional they take effect at once, even if the caller's transaction is rolled back.
    """

    @property
    def is_transactional(self) -> bool:
        """Whether jobs, and outcomes stored with ``ack_here``, share a transaction with what the application writes."""

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
        """Open a fetcher, for the thread that fetches or the one that stores outcomes."""

    def open_listener(self) -> Listener:
        """Open a listener for a thread that neither fetches nor stages."""

    def open_registrar(self) -> Registrar:
        """Open a registrar, for a thread that registers workers or records their heartbeats."""

    def open_maintainer(self, *, waits: bool = False) -> Maintainer:
        """Open a maintainer, for one maintenance loop.

        ``waits``: wait for locks of other transactions, for a management command whose user can wait.
        """
