"""Threads in which other code of a job calls Django, and whose connections must not outlive that job."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from django.db import connections

from djqueue.runtime import django_connections, statements
from djqueue.runtime.statements import Statements
from djqueue.runtime.thread_state import current


class SharedThreads(ThreadPoolExecutor):
    """The event loop's default executor: each call (``asyncio.to_thread`` and the like) is treated as a request of its own.

    Its threads outlive the jobs. Without this they would keep connections that the server closed long ago.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(self._call, statements.of_current_context(), fn, args, kwargs)

    @staticmethod
    def _call(watched: Statements | None, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        is_clean = False
        current.is_shared = True
        statements.watch_all(watched)
        try:
            value = fn(*args, **kwargs)
            django_connections.require_no_open_transaction()
            is_clean = True
        finally:
            if watched is not None and current.has_connected:
                for connection in connections.all(initialized_only=True):
                    current.was_cancelled |= watched.forget(connection)
            django_connections.give_back(is_clean=is_clean, may_keep=False)
        return value


class HelperThreads(Executor):
    """asgiref's ``single_thread_executor``, with a thread for each job in place of one for the whole process.

    Django's async ORM and ``sync_to_async`` go there from an event loop that a sync task runs itself (``asyncio.run``). In
    one thread for all, jobs would wait for each other and share a connection that is never closed: a transaction that one
    leaves open would swallow the writes of all that follow, and once the server had hung up they would all fail.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        helper = current.helper
        if helper is None:
            helper = current.helper = ThreadPoolExecutor(1, thread_name_prefix="djqueue-helper")
            current.has_connected = True  # perhaps, in the helper
        return helper.submit(fn, *args, **kwargs)
